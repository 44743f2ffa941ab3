"""The page 'add an algorithm' shows a file; it must be one that works."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from fedfactor.core.client_data import Federation
from fedfactor.engines.local.engine import LocalEngine

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
