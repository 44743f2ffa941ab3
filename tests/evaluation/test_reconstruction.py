"""Errors against the plain formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse

from fedfactor.evaluation.metrics.reconstruction import (
    per_client_errors,
    pooled_error,
    relative_error,
    squared_residual,
    worst_client,
)


def problem(n: int = 60, m: int = 40, k: int = 5, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    X = rng.random((n, m)) * (rng.random((n, m)) < 0.4)
    return X, rng.random((n, k)), scale * rng.random((k, m))


def plain(X: np.ndarray, U: np.ndarray, V: np.ndarray) -> float:
    return float(np.linalg.norm(X - U @ V) / np.linalg.norm(X))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equals_the_plain_formula(dtype: str) -> None:
    X, U, V = (A.astype(dtype) for A in problem(scale=0.1))
    expected = plain(*(A.astype(float) for A in (X, U, V)))
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    assert relative_error(X, U, V) == pytest.approx(expected, rel=tolerance)
    assert relative_error(np.asfortranarray(X), U, V) == pytest.approx(expected, rel=tolerance)
    assert relative_error(sparse.csr_array(X), U, V) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("level", [0.0, 1e-7, 1e-5, 1e-3])
def test_a_nearly_exact_fit_keeps_its_digits(dtype: str, level: float) -> None:
    _, U, V = problem(300, 200)
    X = (U @ V + level * np.random.default_rng(0).standard_normal((300, 200))).astype(dtype)
    U, V = U.astype(dtype), V.astype(dtype)
    expected = plain(*(A.astype(float) for A in (X, U, V)))
    floor = float(np.finfo(dtype).eps)
    assert relative_error(X, U, V) == pytest.approx(expected, rel=0.02, abs=floor)
    assert relative_error(sparse.csr_array(X), U, V) == pytest.approx(expected, rel=0.02, abs=floor)


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    X, U, V = problem(scale=0.1)
    assert relative_error(*map(torch.tensor, (X, U, V))) == pytest.approx(plain(X, U, V), rel=1e-12)
    assert relative_error(*map(torch.tensor, (U @ V, U, V))) < 1e-14


def test_masks_look_at_observed_cells_only() -> None:
    X, U, V = problem(scale=0.1)
    mask = np.random.default_rng(1).random(X.shape) < 0.7
    hidden = np.where(mask, X, 0)
    residual, total = squared_residual(hidden, U, V, mask)
    assert residual == pytest.approx(np.sum((X - U @ V)[mask] ** 2))
    assert total == pytest.approx(np.sum(X[mask] ** 2))
    residual, total = squared_residual(sparse.csr_array(X), U, V, "stored")
    assert residual == pytest.approx(np.sum((X - U @ V)[X != 0] ** 2))
    assert total == pytest.approx(np.sum(X**2))


def test_all_zero_rows() -> None:
    X = np.zeros((3, 2))
    assert relative_error(X, np.zeros((3, 1)), np.ones((1, 2))) == 0
    assert relative_error(X, np.ones((3, 1)), np.ones((1, 2))) == math.inf
    assert relative_error(np.zeros((0, 2)), np.zeros((0, 1)), np.ones((1, 2))) == 0


def test_clients() -> None:
    X, U, V = problem(scale=0.1)
    rows = {"b": slice(0, 10), "a": slice(10, 60)}
    parts, factors = ({name: A[s] for name, s in rows.items()} for A in (X, U))
    errors = per_client_errors(parts, factors, V)
    assert errors == {name: pytest.approx(plain(X[s], U[s], V)) for name, s in rows.items()}
    assert pooled_error(parts, factors, V) == pytest.approx(plain(X, U, V))
    assert per_client_errors(parts, factors, {"a": V, "b": 0 * V})["b"] == pytest.approx(1.0)
    assert worst_client(errors) == max(errors.items(), key=lambda item: item[1])
    assert worst_client({"a": 1.0, "b": math.nan, "c": 2.0})[0] == "b"
    with pytest.raises(ValueError, match="'a' is in only one"):
        per_client_errors(parts, {"b": U}, V)
    with pytest.raises(ValueError, match="at least one client"):
        worst_client({})
