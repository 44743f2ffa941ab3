"""Counts of the search for Boolean components on a CUDA card: those of the processor, to the last one."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import PooledBMF
from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean import counting as home

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

SHAPES = [(1, 3, 1), (500, 70, 4), (333, 64, 20), (257, 1000, 33), (40, 9000, 63)]


def tiles(n, m, k, seed=0):
    """Return rows of overlapping tiles with wrong and missing cells, components, a choice, and other components."""
    rng = np.random.default_rng(seed)
    V = rng.random((k, m)) < 0.15
    U = rng.random((n, k)) < 0.2
    X = (U.astype(int) @ V.astype(int) > 0) ^ (rng.random((n, m)) < 0.03)
    mask = rng.random((n, m)) < 0.9
    pool = np.concatenate([V ^ (rng.random((k, m)) < 0.05), rng.random((9, m)) < 0.1])
    return X.astype(np.float32), mask, bits.pack(V ^ (rng.random((k, m)) < 0.05)), U.astype(np.uint8), bits.pack(pool)


def both(X, mask):
    """Return the rows as the processor counts them, and as the card does."""
    here = home.observed(X, mask)
    there = home.observed(torch.tensor(X).cuda(), torch.tensor(mask).cuda())
    assert here.card is None
    assert there.card is not None
    assert (here.ones == there.ones).all()
    assert (here.zeros == there.zeros).all()
    return here, there


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("thorough", "hinted", "penalty"), [(False, False, 1), (True, False, 2), (True, True, 1)])
def test_rows_choose_the_same_components(shape, thorough, hinted, penalty):
    X, mask, V, U, _ = tiles(*shape)
    answers = [
        home.choose(rows, V, U if hinted else None, penalty=penalty, thorough=thorough) for rows in both(X, mask)
    ]
    assert (answers[0][0] == answers[1][0]).all()
    assert answers[0][1] == answers[1][1]


@pytest.mark.parametrize("shape", SHAPES)
def test_votes_and_gains_are_the_same(shape):
    X, mask, V, U, pool = tiles(*shape)
    here, there = both(X, mask)
    assert (home.column_votes(here, U, V, penalty=2) == home.column_votes(there, U, V, penalty=2)).all()
    assert (home.swap_gains(here, U, V, pool) == home.swap_gains(there, U, V, pool)).all()
    covered = bits.product(U, V)
    for penalty in (1, 3):
        gains = [home.cover_gains(rows, covered, pool, penalty=penalty) for rows in (here, there)]
        assert (gains[0] == gains[1]).all()


def test_more_components_than_a_number_has_bits_are_counted_by_the_processor():
    X, mask, V, _, _ = tiles(50, 200, 70)
    here, there = both(X, mask)
    assert (home.choose(here, V)[0] == home.choose(there, V)[0]).all()


def test_a_search_on_the_card_ends_at_the_same_components():
    X, _, _, _, _ = tiles(900, 90, 5, seed=3)
    owners = {name: X[i::3] for i, name in enumerate("abc")}
    here = fedfactor.run(PooledBMF(5), owners, seed=0)
    there = fedfactor.run(PooledBMF(5), {name: torch.tensor(part).cuda() for name, part in owners.items()}, seed=0)
    assert (np.asarray(here.V) == there.V.cpu().numpy()).all()
    assert here.score.sse == there.score.sse
    assert all((here.factors[name].U == there.factors[name].U.cpu().numpy()).all() for name in owners)
