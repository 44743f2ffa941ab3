"""A run killed thirty times at random moments, and resumed each time, ends with the bits of an undisturbed run.

SIGKILL, two algorithms, fifteen kills each, two worker threads; no checkpoint was ever unreadable or went back.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from claims._kill import ALGORITHMS, digest_of, killed_until_done, undisturbed

KILLS = 15


def claim() -> dict:
    figures: dict = {"kills": 0, "in_mid_run": 0, "unreadable": 0, "steps_back": 0}
    same = True
    for number, name in enumerate(ALGORITHMS):
        whole, seconds = undisturbed(name)
        with tempfile.TemporaryDirectory() as folder:
            found = killed_until_done(Path(folder) / "run", name, KILLS, number, seconds)
        same &= found["result"] == whole
        for key in ("kills", "in_mid_run", "unreadable", "steps_back"):
            figures[key] += found[key]
        figures[name] = {
            "seconds_undisturbed": round(seconds, 2),
            "rounds_at_kills": found["rounds_at_kills"],
            "undisturbed": digest_of(whole),
            "resumed": digest_of(found["result"]),
        }
    sound = figures["unreadable"] == 0 and figures["steps_back"] == 0
    # Kills before the first checkpoint, or after the last round, prove little: most must fall between.
    hit = figures["kills"] >= 24 and figures["in_mid_run"] >= 15
    return {**figures, "holds": bool(same and sound and hit)}
