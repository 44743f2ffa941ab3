from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import FedAvgNMF, PooledNMF
from fedfactor.plots import mosaic, panels, plot_client_errors, plot_components, plot_history

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def runs():
    X = np.random.default_rng(0).random((30, 6))
    owners = {"a": X[:7], "b": X[7:]}
    return {
        name: fedfactor.run(cls(2, tol=0), owners, rounds=4, seed=0)
        for name, cls in (("sums", PooledNMF), ("mean", FedAvgNMF))
    }


def names(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_history_draws_what_the_runs_recorded(runs):
    ax = plot_history(runs, baseline=0.25, ax=panels()[0])
    for line, run in zip(ax.lines, runs.values(), strict=False):
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3, 4])
        np.testing.assert_array_equal(line.get_ydata(), [r.metrics.get("relative_error", np.nan) for r in run.history])
    assert list(ax.lines[-1].get_ydata()) == [0.25, 0.25]
    assert names(ax) == ["sums", "mean", "all rows in one place"]


@pytest.mark.parametrize(
    ("pick", "expected"),
    [
        (lambda runs: runs["sums"], ["PooledNMF"]),
        (lambda runs: list(runs.values()), ["PooledNMF", "FedAvgNMF"]),
        (lambda runs: [runs["sums"], runs["sums"]], ["PooledNMF 1", "PooledNMF 2"]),
    ],
)
def test_runs_without_labels_are_named_after_their_algorithm(runs, pick, expected):
    assert names(plot_history(pick(runs), ax=panels()[0])) == expected


def test_history_without_the_metric_is_a_mistake(runs):
    with pytest.raises(ValueError, match="'beauty'"):
        plot_history(runs, metric="beauty", ax=panels()[0])


def test_client_errors_are_those_of_the_runs(runs):
    ax = plot_client_errors(runs, ax=panels()[0])
    heights = [bar.get_height() for bar in ax.patches]
    assert heights == [run.scores[name].relative_error for run in runs.values() for name in ("a", "b")]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["a", "b"]


def test_mosaic_places_and_scales_every_tile():
    V = np.arange(1.0, 13.0).reshape(3, 4)
    picture = mosaic(V, (2, 2), n_columns=2)
    assert picture.shape == (5, 5)
    np.testing.assert_allclose(picture[:2, :2], V[0].reshape(2, 2) / 4)
    np.testing.assert_allclose(picture[:2, 3:], V[1].reshape(2, 2) / 8)
    np.testing.assert_allclose(picture[3:, :2], V[2].reshape(2, 2) / 12)
    assert np.isnan(picture[2]).all()
    assert np.isnan(picture[3:, 3:]).all()


def test_mosaic_of_an_empty_component_is_empty():
    np.testing.assert_array_equal(mosaic(np.zeros((1, 4)), (2, 2)), np.zeros((2, 2)))


def test_components_that_do_not_fill_their_tiles_are_a_mistake():
    with pytest.raises(ValueError, match="2 × 2"):
        plot_components(np.ones((3, 5)), (2, 2), ax=panels()[0])


def test_a_new_figure_by_default(runs):
    from matplotlib import pyplot

    pyplot.switch_backend("Agg")
    axes = [plot_history(runs), plot_client_errors(runs["sums"]), plot_components(np.eye(4), (2, 2))]
    assert len({ax.figure.number for ax in axes}) == 3
    pyplot.close("all")


@pytest.mark.integration
def test_without_matplotlib_the_command_is_named(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not installed')")
    source = Path(__file__).resolve().parents[2] / "src"
    code = "import numpy; from fedfactor.plots import plot_components; plot_components(numpy.eye(4), (2, 2))"
    path = os.pathsep.join([str(tmp_path), str(source)])
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 1
    assert "MissingExtraError" in done.stderr
    assert "pip install matplotlib" in done.stderr
