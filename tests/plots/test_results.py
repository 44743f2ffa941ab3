from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.plots import (
    panels,
    plot_comparison,
    plot_rank,
    plot_top_features,
    plot_usage,
    top_features,
    usage_by_owner,
)
from fedfactor.plots.svg import svg
from fedfactor.selection import RankSelection


@pytest.fixture
def run():
    X = np.random.default_rng(0).random((30, 6))
    return fedfactor.run(PooledNMF(2), {"a<b": X[:12], "c": X[12:]}, rounds=5, seed=0)


def test_top_features_are_the_largest_by_name():
    V = np.random.default_rng(1).random((3, 50))
    names = [f"n{j}" for j in range(50)]
    for row, found in zip(V, top_features(V, names, 5), strict=True):
        assert [name for name, _ in found] == [names[j] for j in np.argsort(-row)[:5]]
    assert top_features(np.zeros((1, 3))) == [[]]
    with pytest.raises(ValueError, match="2 names"):
        top_features(V, ["a", "b"])


def test_bars_carry_the_names_of_a_run_s_features():
    X = np.random.default_rng(0).random((30, 3))
    import pandas as pd

    model = fedfactor.PooledNMF(2, rounds=3, tol=0, random_state=0).fit(pd.DataFrame(X, columns=["crp", "ldl", "age"]))
    for source in (model, model.run_):
        ax = plot_top_features(source, component=1, ax=panels()[0])
        assert {label.get_text() for label in ax.get_yticklabels()} <= {"crp", "ldl", "age"}
    with pytest.raises(ValueError, match="component=7"):
        plot_top_features(model, component=7)


def test_usage_does_not_depend_on_how_weight_is_split_between_U_and_V(run):
    from dataclasses import replace

    owners, shares = usage_by_owner(run)
    assert owners == ["a<b", "c"]
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    by = np.array([2.0, 0.5])
    turned = {name: replace(kept, U=kept.U * by, V=kept.V / by[:, None]) for name, kept in run.factors.items()}
    np.testing.assert_allclose(usage_by_owner(replace(run, factors=turned))[1], shares)


def test_of_many_owners_those_that_differ_most_are_drawn():
    factors = {f"o{i:03d}": np.array([[1.0, 1.0 + 10 * (i == 70)]]) for i in range(100)}
    ax = plot_usage(factors, most=5, ax=panels()[0])
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert len(labels) == 5
    assert "o070" in labels


def test_rank_and_comparison_draw_every_candidate():
    errors = np.array([[0.4, 0.2, 0.25], [0.5, 0.2, 0.23]])
    ax = plot_rank(RankSelection((1, 2, 3), errors, errors, 2, 2, 0), ax=panels()[0])
    assert "recommended: 2" in [text.get_text() for text in ax.get_legend().get_texts()]
    ax = plot_comparison({"alone": {"a": [0.3, 0.4]}, "b": {"a": [0.1, 0.2]}}, ax=panels()[0])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["alone", "b"]


def test_a_drawing_takes_the_colours_of_its_page_and_escapes_its_title():
    text = svg(lambda ax: ax.plot([1, 2], label="<x>"), 'of "a" & <b>')
    assert "var(--s1)" in text
    assert "#030405" not in text
    assert 'aria-label="of &quot;a&quot; &amp; &lt;b&gt;"' in text


def test_a_run_shows_itself_in_a_notebook(run):
    shown = run._repr_html_()
    assert "PooledNMF" in shown
    assert "a<b" not in shown
    frame = run.to_frame()
    assert frame["bytes_up"].sum() == run.bytes_up
    assert "relative_error" in frame
