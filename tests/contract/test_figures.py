"""Small runs give the figures written down; ``python -m tests.contract.figures`` where a change is meant."""

from __future__ import annotations

import json

import pytest

from fedfactor import algorithms
from fedfactor.core.algorithm import Round, download_for
from fedfactor.testing.data import federation_for, small_data
from tests.contract.figures import WRITTEN, cases, figures, settings

EXPECTED = json.loads(WRITTEN.read_text())
SINGLE = ("FedDMF",)
"""Algorithms that work in single precision."""


@pytest.mark.parametrize(("name", "algorithm", "kind"), [pytest.param(*case, id=case[0]) for case in cases()])
def test_figures_are_those_written_down(name, algorithm, kind):
    if name.startswith("FedDMF"):
        pytest.importorskip("torch")
    found, expected = figures(name, algorithm, kind), EXPECTED[name]
    close = 1e-3 if name.startswith(SINGLE) else 1e-6
    assert sorted(found) == sorted(expected)
    for what, values in expected.items():
        numbers = [pytest.approx(v, rel=close, abs=close, nan_ok=True) if isinstance(v, float) else v for v in values]
        assert found[what] == numbers, what


@pytest.mark.parametrize(
    "algorithm", [pytest.param(each, id=name) for name, each, kind in cases() if kind == "unbegun"]
)
def test_the_error_of_a_state_is_that_of_the_factors_it_ends_with(algorithm):
    if type(algorithm).__name__ == "FedDMF":
        pytest.importorskip("torch")
    federation = federation_for(algorithm, small_data(algorithm.domain))
    meta = federation.prepare(algorithm.domain)
    down = download_for(algorithm.init_server(meta, Round(4, 0))[1], meta.clients[-1])
    shard = federation.shard(meta.clients[-1])
    state = algorithm.init_client(shard, meta, Round(4, 0, meta.clients[-1]))
    of_state, of_factors = (algorithm.score(shard, s, down) for s in (state, algorithm.finish(shard, state, down)))
    assert (of_state.n, of_state.total) == (of_factors.n, of_factors.total)
    assert of_state.sse == pytest.approx(float(of_factors.sse), rel=1e-12)


@pytest.mark.parametrize("name", sorted(algorithms.__all__))
def test_settings_are_those_written_down(name):
    assert settings(name) == EXPECTED[name]


def test_no_figure_is_left_of_a_case_that_is_gone():
    assert set(EXPECTED) == {name for name, _, _ in cases()} | set(algorithms.__all__)
