"""Results that are there are not lost without being asked for."""

from __future__ import annotations

import pytest

from fedfactor.cli.run_folder import Place
from fedfactor.core.errors import DataError


def test_a_folder_with_results_is_refused(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(DataError, match=r"already holds a finished run.*--overwrite"):
        Place(tmp_path).check(overwrite=False)


def test_unless_it_may_be_overwritten(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    Place(tmp_path).check(overwrite=True)
    assert (tmp_path / "run.json").read_text() == "{}"  # looking changes nothing


def test_a_run_that_is_not_finished_may_go_on(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    place = Place(tmp_path)
    place.checkpoint.folder.mkdir()
    place.checkpoint.file.write_bytes(b"")
    place.check(overwrite=False)


def test_a_file_is_no_folder(tmp_path):
    file = tmp_path / "out"
    file.write_text("")
    with pytest.raises(DataError, match="is a file, but results need a folder"):
        Place(file).check(overwrite=True)


def test_checkpoints_come_every_round_or_less_often(tmp_path):
    Place(tmp_path, every=1).check(overwrite=False)
    with pytest.raises(ValueError, match="--checkpoint-every 0 must be at least 1"):
        Place(tmp_path, every=0).check(overwrite=False)
