"""What noise would cost by ε: a simulation that spends nothing and is labelled as one."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedfactor
from fedfactor import PooledNMF
from fedfactor.cli import app
from fedfactor.datasets.synthetic import planted_nmf
from fedfactor.privacy import Ledger
from fedfactor.selection import cost_of_noise
from tests.command_line import CliRunner

pytest.importorskip("dp_accounting")
pytest.importorskip("cryptography")


def clients():
    X = planted_nmf(600, 6, 2, noise=0.1, seed=0).X
    return {name: X[place::3] for place, name in enumerate("abc")}


@pytest.mark.slow
def test_less_epsilon_costs_more_and_nothing_is_spent(tmp_path):
    books = Ledger(tmp_path / "books.jsonl", epsilon=1.0)
    asked = fedfactor.dp(1.0, ledger=books)
    found = cost_of_noise(clients(), PooledNMF(2), epsilons=(0.5, 50.0), privacy=asked, repeats=2)
    assert found.errors.shape == (2, 2)
    few, many = found.ratios.mean(axis=1)
    assert few > many > 1
    assert many < 1.05
    assert books.epsilon() == 0
    assert "no ε was spent" in found.summary()["simulation"]
    again = cost_of_noise(clients(), PooledNMF(2), epsilons=(0.5, 50.0), privacy=asked, repeats=2)
    np.testing.assert_array_equal(found.errors, again.errors)


@pytest.mark.slow
def test_the_command_draws_the_same_curve(tmp_path):
    for name, X in clients().items():
        np.savetxt(tmp_path / f"{name}.csv", X, delimiter=",", header="p,q,r,s,t,u", comments="", fmt="%.17g")
    files = [str(tmp_path / f"{name}.csv") for name in "abc"]
    words = ["epsilon", *files, "-k", "2", "--epsilons", "0.5,50", "--repeats", "1", "-o", str(tmp_path / "curve.json")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "Simulation: nothing was spent" in result.output
    curve = json.loads((tmp_path / "curve.json").read_text())
    expected = cost_of_noise(clients(), PooledNMF(2), epsilons=(0.5, 50.0), repeats=1)
    np.testing.assert_allclose(curve["errors"], expected.errors)
    assert CliRunner().invoke(app, [*words[:7], "--epsilons", "high"]).exit_code == 2
