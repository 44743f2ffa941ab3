"""Uploads whose shapes follow from the question, over messages with a secure sum."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import PooledCF
from fedfactor.core.errors import ProtocolError
from fedfactor.core.wire import Leaf
from fedfactor.network.verified_messages import Tagged, empty_upload
from tests.network.in_process import Office

pytest.importorskip("cryptography")
rng = np.random.default_rng(0)
X = np.where(rng.random((330, 12)) < 0.6, rng.integers(1, 6, (330, 12)), 0).astype(float)
X[:, 0] = 0
X[::4, 0] = 4
OWNERS = {"north": X[:110], "south": X[110:220], "west": X[220:]}
ALGORITHM = PooledCF(2, tol=0.0, min_ratings=100)  # the first column has fewer, and no factors


@pytest.mark.slow
def test_sums_of_fewer_items_than_there_are(tmp_path):
    made = Office(tmp_path, ALGORITHM, OWNERS, rounds=4, protect="secure-sum", report_score=False)
    made.server(dropouts="wait").run()
    engine = fedfactor.LocalEngine(workers=2)
    run = fedfactor.run(ALGORITHM, OWNERS, rounds=4, seed=5, privacy="secure-sum", engine=engine)
    for name in OWNERS:
        np.testing.assert_array_equal(made.factors(name).V, run.factors[name].V)
    assert not run.V[:2, 0].any()
    assert run.V[:2, 1:].all()


@pytest.mark.parametrize("sizes", [(4, 3), (3, 2, 1), (3,), (-1, 2)])
def test_shapes_that_cannot_be_are_refused(sizes):
    spec = {"tags": Leaf("float64", (3,), exact=False), "signature": Leaf("float64", (2,), exact=False)}
    made = empty_upload(Tagged, spec, (2, 3))
    assert (made.signature.shape, made.tags.shape) == ((2,), (3,))
    with pytest.raises(ProtocolError, match="announce"):
        empty_upload(Tagged, spec, sizes)
