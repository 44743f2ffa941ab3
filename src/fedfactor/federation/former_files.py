"""Files that earlier versions kept in the folders of a federation, and that nothing needs any more."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

SERVER = ("superlink.db*", "mailbox.secret", "flower", "app")
"""At the coordinator: what version 0.2 kept for Flower and for its run."""

PARTY = ("node", "node.secret", "flower", "ca.pem")
"""At a party: what version 0.2 kept for Flower's nodes."""


def remove_former(folder: Path, names: Sequence[str]) -> None:
    """Delete what lies in a folder under these names."""
    for name in names:
        for path in folder.glob(name):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
