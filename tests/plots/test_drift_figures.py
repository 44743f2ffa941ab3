"""The figures of drift show the numbers of the history, round by round."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor.evaluation.metrics.coherence import client_similarity
from fedfactor.plots import panels, plot_drift, plot_similarity


@pytest.fixture(scope="module")
def run():
    X = np.random.default_rng(0).random((30, 6))
    return fedfactor.run(fedfactor.algorithms.FNMF(2, diagnostics=True), {"a": X[:7], "b": X[7:]}, rounds=4, seed=0)


def test_lines_are_the_history(run):
    solid, dashed = plot_drift(run, ax=panels()[0]).lines
    for line, name in ((solid, "drift"), (dashed, "plain_drift")):
        assert list(line.get_xdata()) == [1, 2, 3, 4]
        assert list(line.get_ydata()) == [record.metrics[name] for record in run.history]
    assert (solid.get_linestyle(), dashed.get_linestyle()) == ("-", "--")
    assert len(plot_drift(run, plain=False, ax=panels()[0]).lines) == 1


def test_a_run_without_diagnostics_is_refused():
    X = np.random.default_rng(0).random((10, 4))
    plain = fedfactor.run(fedfactor.algorithms.FNMF(2), {"a": X[:5], "b": X[5:]}, rounds=1, seed=0)
    for figure in (plot_drift, plot_similarity):
        with pytest.raises(ValueError, match="diagnostics=True"):
            figure(plain)


def test_similarity_of_runs_is_the_history(run):
    (line,) = plot_similarity(run, ax=panels()[0]).lines
    assert list(line.get_ydata()) == [record.metrics["client_similarity"] for record in run.history]


def test_similarity_of_clients_is_a_table():
    near = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    Vs = {"a": np.eye(3)[:2], "b": np.eye(3)[[1, 0]], "c": near}
    names, table = client_similarity(Vs)
    assert names == ("a", "b", "c")
    half = (1 + np.sqrt(0.5)) / 2  # one component equal, one at 45 degrees
    assert np.allclose(table, [[1, 1, half], [1, 1, half], [half, half, 1]])
    image = plot_similarity(Vs, ax=panels()[0]).images[0]
    assert np.allclose(image.get_array(), table)
