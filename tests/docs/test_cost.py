"""Tables of what noise costs, and of what canaries prove, are those of the stored results."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[2] / "docs" / "_ext" / "cost.py"
spec = importlib.util.spec_from_file_location("cost", FILE)
cost = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cost)


@pytest.mark.parametrize("page", cost.TABLES)
def test_a_page_shows_what_was_stored(page):
    assert cost.filled(page) == (cost.DOCS / page).read_text(), "run python docs/_ext/cost.py"


def test_stored_sets_are_complete():
    stored = json.loads((cost.DOCS / "howto" / "cost_of_noise.json").read_text())
    assert all(len(mine[epsilon]) == 3 for mine in stored.values() for epsilon in ("inf", *cost.EPSILONS))
    assert cost.PICTURE.exists()
