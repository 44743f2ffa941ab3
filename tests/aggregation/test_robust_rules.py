"""A new robust rule is one class, and its test: Python and the command line take its name."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor.aggregation import Robust, robust_rules
from fedfactor.aggregation.robust_rules import RobustRule, robust_rule
from fedfactor.algorithms import FedAvgNMF
from fedfactor.cli.main import app
from tests.command_line import CliRunner


@pytest.fixture
def geometric(monkeypatch):
    """Register the point with the least sum of distances to all uploads."""
    monkeypatch.setattr(robust_rules, "_RULES", dict(robust_rules._RULES))

    @robust_rule("geometric-median")
    class GeometricMedian(RobustRule):
        def withstands(self, parameters, n_clients):
            return (n_clients - 1) // 2

        def centre(self, uploads, parameters, at):
            centre = np.median(uploads, axis=0)
            for _ in range(50):
                weights = 1 / np.maximum(np.linalg.norm(uploads - centre, axis=1, keepdims=True), 1e-12)
                centre = (weights * uploads).sum(axis=0) / weights.sum()
            return centre


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    V = rng.random((2, 6))
    return {name: rng.random((30, 2)) @ V for name in "abcde"}


def test_in_python(geometric, rows):
    run = fedfactor.run(FedAvgNMF(2), rows, rounds=3, seed=0, privacy="geometric-median")
    assert run.privacy["mode"] == "robust"
    assert Robust("geometric-median").withstands(9) == 4
    plain = fedfactor.run(FedAvgNMF(2), rows, rounds=3, seed=0, privacy="median")
    assert not np.array_equal(run.V, plain.V)
    assert np.linalg.norm(run.V - plain.V) < 0.2 * np.linalg.norm(plain.V)
    with pytest.raises(ValueError, match="'group-median', 'geometric-median', or dp"):
        fedfactor.run(FedAvgNMF(2), rows, rounds=3, privacy="mode")


def test_on_the_command_line(geometric, rows, tmp_path):
    files = [tmp_path / f"{name}.csv" for name in rows]
    for file, X in zip(files, rows.values(), strict=True):
        np.savetxt(file, X, delimiter=",", header="a,b,c,d,e,f", comments="")
    call = ["fit", *map(str, files), "-a", "fedavg-nmf", "-k", "2", "--rounds", "3", "--seed", "0", "-q"]
    for mode, code in (("geometric-median", 0), ("geometric-mean", 2)):
        done = CliRunner().invoke(app, [*call, "--privacy", mode, "-o", str(tmp_path / mode)])
        assert done.exit_code == code, done.output
    run = fedfactor.run(FedAvgNMF(2), rows, rounds=3, seed=0, privacy="geometric-median")
    np.testing.assert_allclose(fedfactor.load(tmp_path / "geometric-median").components_, run.V, rtol=1e-12)
