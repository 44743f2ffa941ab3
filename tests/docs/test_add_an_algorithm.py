"""The page 'add an algorithm' shows a file; it must be one that works."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from fedfactor.algorithm_names import algorithm_class
from fedfactor.cli import app
from fedfactor.cli.parameter_parsing import chosen_class
from fedfactor.core.client_data import Federation
from fedfactor.engines.local.engine import LocalEngine
from tests.command_line import CliRunner

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "median_nmf.py"


@pytest.fixture(scope="module")
def page():
    spec = importlib.util.spec_from_file_location("median_nmf", PAGE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["median_nmf"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["median_nmf"]


@pytest.fixture(scope="module")
def owners():
    rng = np.random.default_rng([11, 0])
    V = rng.random((3, 12)) * (rng.random((3, 12)) < 0.5)
    return {name: rng.random((40, 3)) @ V for name in ("east", "north", "west")}


def test_the_example_factors_shared_data(page, owners):
    run = LocalEngine().run(page.MedianNMF(n_components=3), Federation(owners), rounds=30, seed=0)
    mean = np.vstack(list(owners.values()))
    baseline = np.linalg.norm(mean - mean.mean(axis=0)) / np.linalg.norm(mean)
    assert run.relative_error < 0.5 * baseline
    assert run.V.shape == (3, 12)


def test_its_one_sending_rule_is_gather(page):
    assert page.Up.uplink == "gather"
    assert not hasattr(page.Down, "uplink")


@pytest.mark.slow
def test_the_command_line_runs_a_class_of_the_working_directory(tmp_path, monkeypatch, owners):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "median_nmf", raising=False)
    shutil.copy(PAGE, tmp_path)
    for name in "ab":
        rows = np.random.default_rng(ord(name)).random((20, 4))
        np.savetxt(f"{name}.csv", rows, delimiter=",", header="w,x,y,z", comments="")
    words = ["fit", "a.csv", "b.csv", "-k", "2", "--rounds", "3", "-a", "median_nmf:MedianNMF", "-o", "out"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "MedianNMF, rank 2" in done.output
    assert Path("out/shared/components.safetensors").exists()


@pytest.mark.parametrize("name", ["no_such_module:A", "fedfactor.algorithms:NoSuch", "pathlib:Path", ":A"])
def test_what_is_no_algorithm_is_refused(name):
    with pytest.raises(ValueError, match=r"cannot be imported|is not a subclass"):
        chosen_class(name)


def test_terms_of_a_federation_import_nothing():
    with pytest.raises(ValueError, match="There is no algorithm"):
        algorithm_class("fedfactor.algorithms:PooledNMF")
