from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from fedfactor.experiments.feddmf.methods import METHODS, SIMPLE, measure, settings_for
from fedfactor.experiments.feddmf.split import split
from fedfactor.experiments.feddmf.tables import markdown

pytest.importorskip("torch")

X = sparse.csr_array((np.random.default_rng(0).random((40, 30)) < 0.3).astype(np.float32))


def test_no_client_sees_a_cell_that_it_is_tested_on():
    part = split(X, clients=3, common=0.4, seed=1)
    federation = part.federation()
    for name in part.rows:
        shard, foreign = federation.shard(name), part.foreign(name)
        assert not np.intersect1d(shard.held, foreign).size
        assert shard.X.toarray()[:, foreign].sum() == 0
        np.testing.assert_array_equal(shard.X.toarray()[:, shard.held], part.truth(name, shard.held))
    assert sorted(np.concatenate(list(part.rows.values())).tolist()) == list(range(40))
    held_back = part.pooled(honest=True).shard("all").holdout
    assert held_back.sum() == sum(len(rows) * len(part.foreign(name)) for name, rows in part.rows.items())


@pytest.mark.parametrize("method", [*METHODS, *SIMPLE])
def test_every_method_gives_figures(method):
    tiny = {"n_components": 3, "hidden": 4, "batch_size": 128}
    settings = {} if method in SIMPLE else settings_for({"refine": 1, **METHODS[method]}, 3, **tiny)
    found = measure(split(X), method, settings, seed=0)
    assert set(found["foreign"]) == {"client 1", "client 2"}
    assert 0 <= found["f1_foreign"] <= found["f1_best_foreign"] <= 1


def test_the_table_shows_means_spreads_and_the_share_of_the_bound():
    base = {"x": 0.5, "f1_own": 0.5, "bytes_up": 0, "seconds": 1.0}
    rows = [{**base, "method": "DMF, all data", "f1_foreign": 0.5}, {**base, "method": "B", "f1_foreign": 0.4}]
    rows.append({**base, "method": "B", "f1_foreign": 0.5})
    assert "| 0.5 | B | 0.500 ± 0.000 | 0.450 ± 0.050 | 90% | 0.00 | 1.0 |" in markdown(rows)
