"""The table of speeds is that of the stored results."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / "docs" / "_ext" / "speed.py"


def test_the_page_says_what_was_stored():
    spec = importlib.util.spec_from_file_location("speed", FILE)
    speed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(speed)
    page = speed.PAGE.read_text()
    assert speed.filled(page, json.loads(speed.STORED.read_text())) == page, "run python docs/_ext/speed.py"
    assert speed.PICTURE.exists()
