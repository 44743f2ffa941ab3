"""The tables of files in the page on operations, and what lies in a federation's folders beyond them."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "operations.md"


def tables():
    """Return the names in each table of files: of the coordinator, of a party, beside its key."""
    text = PAGE.read_text().partition("## Files")[2].partition("\n## ")[0]
    found = [re.findall(r"^\| (`.*?) \|", part, re.MULTILINE) for part in text.split("| file | what |")[1:]]
    return [[name for row in rows for name in re.findall("`(.*?)`", row)] for rows in found]


def unnamed(trial):
    """List the files of a trial that the page does not name; logs of the trial's own processes do not count."""
    server, party, key = tables()
    wrong = _unnamed(trial.coordinator.folder, server)
    for name in trial.files:
        if trial.folder(name).exists():
            wrong += _unnamed(trial.folder(name), [*party, "join.log*"])
    beside = [pattern.replace("KEY", "*.key") for pattern in key]
    own = {"serve.log", "server", "federation.toml", *trial.files, *(path.name for path in trial.files.values())}
    return wrong + [
        str(path) for path in trial.root.iterdir()
        if path.name not in own and not any(fnmatch(path.name, pattern) for pattern in beside)
    ]  # fmt: skip


def _unnamed(folder, names):
    # A writer that was killed leaves a hidden file, which nobody reads.
    paths = [path for path in folder.iterdir() if not fnmatch(path.name, ".*.part")]
    shown = ((path, path.name + "/" if path.is_dir() else path.name) for path in paths)
    return [str(path) for path, name in shown if not any(fnmatch(name, pattern) for pattern in names)]
