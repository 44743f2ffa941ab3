"""The study of the papers' noise: cells that are kept, and what it says about ε."""

from __future__ import annotations

import math

import pytest

from papers.privacy import STUDIES, reproduce
from papers.privacy import run as study


def test_an_unknown_study_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no study 'fig'"):
        reproduce(tmp_path, only=("fig",))


def test_without_data_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDFACTOR_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr(study, "REAL", (("mushroom", True, 8),))
    said = []
    reproduce(tmp_path / "out", only=("curves",), say=said.append)
    assert "none of its data are here" in said[-1]


@pytest.mark.slow
def test_cells_are_made_once_and_hold_the_true_price(tmp_path, monkeypatch):
    monkeypatch.setitem(STUDIES, "fnmf", lambda full: list(study.fnmf(full))[:2])
    monkeypatch.setitem(STUDIES, "felb", lambda full: list(study.felb(full))[:2])
    said = []
    reproduce(tmp_path, only=("felb", "fnmf"), say=said.append)
    cells = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    assert len(cells) == 4
    reproduce(tmp_path, only=("felb", "fnmf"), say=said.append)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()} == cells
    assert "true ε inf" in said[-1]  # nothing bounds V
    noisy = next(line for line in said if "method FELB" in line and "nominal ε 1.0" in line)
    assert math.isfinite(float(noisy.split("true ε ")[1].split(",")[0]))
    assert (tmp_path / "felb.md").exists()
    assert (tmp_path / "felb.png").exists()
