"""The table of what noise costs is that of the stored results."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / "docs" / "_ext" / "cost.py"


def test_the_page_says_what_was_stored():
    spec = importlib.util.spec_from_file_location("cost", FILE)
    cost = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cost)
    stored = json.loads(cost.STORED.read_text())
    page = cost.PAGE.read_text()
    assert cost.filled(page, stored) == page, "run python docs/_ext/cost.py"
    assert cost.PICTURE.exists()
    for name, mine in stored.items():
        for unit in cost.UNITS:
            for step in cost.STEPS:
                assert {"1", "4"} <= set(mine[f"{unit}, {step}"]), name
