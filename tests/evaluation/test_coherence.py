"""Agreement of components, whatever their order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedfactor.evaluation.metrics.coherence import drift, match_components, matched_similarity


def components(k: int = 4, m: int = 9, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((k, m))


def test_order_and_scale_do_not_matter() -> None:
    V, order = components(), [2, 0, 3, 1]
    W = V[order] * np.array([[1.0], [3.0], [0.1], [7.0]])
    assert matched_similarity(V, W) == pytest.approx(1.0)
    of_V, of_W = match_components(V, W)
    assert of_V.tolist() == [0, 1, 2, 3]
    assert [order[j] for j in of_W] == [0, 1, 2, 3]


def test_no_pairing_does_better() -> None:
    V, W = components(), components(seed=1)
    cosine = (V / np.linalg.norm(V, axis=1)[:, None]) @ (W / np.linalg.norm(W, axis=1)[:, None]).T
    orders = list(itertools.permutations(range(4)))
    assert matched_similarity(V, W) == pytest.approx(max(np.mean(cosine[range(4), order]) for order in orders))
    best = min(np.linalg.norm(V - W[list(order)]) for order in orders)
    assert drift(V, W) == pytest.approx(best / np.linalg.norm(V))


def test_left_over_and_zero_components_count_as_nothing() -> None:
    V = components()
    assert matched_similarity(V, V[:2]) == pytest.approx(0.5)
    assert matched_similarity(V, np.r_[V[:3], np.zeros((1, 9))]) == pytest.approx(0.75)
    assert drift(np.zeros((2, 3)), np.zeros((2, 3))) == 0


def test_wrong_input() -> None:
    with pytest.raises(ValueError, match="same columns"):
        matched_similarity(components(), components(m=8))
    with pytest.raises(ValueError, match="one shape"):
        drift(components(), components(k=3))
    with pytest.raises(ValueError, match="finite"):
        drift(components(), components() * np.nan)
