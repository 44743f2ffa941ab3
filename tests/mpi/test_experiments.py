"""The studies run from end to end."""

from __future__ import annotations

import json

import pytest

from papers import stored
from papers.dsanls import run as study
from papers.dsanls import secure
from tests.mpi.launcher import needs_mpi

pytestmark = [pytest.mark.integration, needs_mpi()]


def test_the_studies_of_the_planted_matrix(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "present", lambda: ["planted"])
    monkeypatch.setattr(secure, "present", lambda: ["planted"])
    monkeypatch.setattr(study, "SKETCHED", ("DSANLS subsampling proximal",))
    monkeypatch.setattr(study, "PLAIN", ("rows hals", "grid hals"))
    said = []
    study.reproduce(tmp_path, size="quick", only=("errors", "secure"), say=said.append)
    known = stored.read()
    rows = [json.loads(path.read_text()) for path in (tmp_path / "cells").iterdir()]
    for row in rows:
        cell = {"data": "planted", "method": row["method"]} | ({"split": row["split"]} if "split" in row else {})
        wanted = stored.select(known[f"dsanls/{row['study']}-quick"], cell, "final")
        assert row["final"] == pytest.approx(wanted, rel=1e-6), row["method"]
        assert len(row["seconds"]) == len(row["errors"]) > 0
    assert (tmp_path / "errors-planted.png").exists()
    assert (tmp_path / "secure.md").read_text().count("\n") == 2 + 20
    before = len(said)
    study.reproduce(tmp_path, size="quick", only=("errors", "secure"), say=said.append)
    assert len(said) == before  # nothing was made again


def test_an_unknown_study_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no study 'speed'"):
        study.reproduce(tmp_path, only=("speed",))
