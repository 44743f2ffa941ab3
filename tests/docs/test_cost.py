"""The table of what noise costs is that of the stored results."""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))


def test_the_page_says_what_was_stored():
    import cost

    stored = json.loads(cost.STORED.read_text())
    page = cost.PAGE.read_text()
    assert cost.filled(page, stored) == page, "run python docs/_ext/cost.py"
    assert cost.PICTURE.exists()
    for name, mine in stored.items():
        for unit in cost.UNITS:
            for step in cost.STEPS:
                assert {"1", "4"} <= set(mine[f"{unit}, {step}"]), name
