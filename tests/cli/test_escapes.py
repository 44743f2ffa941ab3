"""What others wrote is shown without the codes that move a terminal's cursor or hide its lines."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from fedfactor.cli import app
from fedfactor.data.results import write_factors

pytest.importorskip("cryptography")
EVIL = "\x1b[2J\x1b]0;title\x07 fine\x9b31m"


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def clean(text):
    return not any(code in text for code in "\x1b\x07\x9b")


def test_status_of_a_federation(monkeypatch, tmp_path):
    """Whatever the folder of a run says, be it from another machine."""
    said = {"state": EVIL, "took_part": ["north", EVIL], "rejected": {EVIL: EVIL}, "bytes_up": 1, "last_said": [EVIL]}
    monkeypatch.setattr("fedfactor.federation.outcome.status_of", lambda place: said)
    result = call("status", tmp_path)
    assert "fine" in result.output
    assert clean(result.output)


def test_info_of_a_folder(tmp_path):
    record = {
        "algorithm": EVIL, "settings": {EVIL: EVIL}, "seed": 0, "rounds": 1, "status": EVIL, "bytes_up": 1,
        "bytes_down": 1, "relative_error": 0.5,
    }  # fmt: skip
    write_factors(tmp_path, np.eye(2), features=["a", EVIL], private={"north\x1b[1A": np.ones((3, 2))}, run=record)
    result = call("info", tmp_path)
    assert result.exit_code == 0, result.output
    assert "fine" in result.output
    assert clean(result.output)
