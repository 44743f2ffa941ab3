"""Splitting rows among owners."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from fedfactor.core.errors import DataError
from fedfactor.io.partition import by_class, by_label_skew, row_positions, split_evenly, split_rows

LABELS = np.array(["b", "b", "a", "c", "a", "c", "c"])


def dense() -> np.ndarray:
    return np.random.default_rng(3).poisson(0.7, (7, 5)).astype(float)


def test_every_row_goes_to_its_owner_in_order() -> None:
    X = dense()
    for kind in (X, sparse.csr_array(X), sparse.csr_matrix(X), sparse.coo_array(X), pd.DataFrame(X)):
        parts = split_rows(kind, LABELS)
        assert list(parts) == ["b", "a", "c"]
        for name, part in parts.items():
            rows = part.toarray() if sparse.issparse(part) else np.asarray(part)
            np.testing.assert_array_equal(rows, X[name == LABELS])


def test_torch_rows() -> None:
    torch = pytest.importorskip("torch")
    X = torch.arange(14.0).reshape(7, 2)
    parts = split_rows(X, LABELS)
    assert torch.equal(parts["a"], X[[2, 4]])
    assert parts["b"].data_ptr() == X.data_ptr()


def test_rows_that_lie_together_are_views() -> None:
    labels = np.repeat(["x", "y", "z"], [2, 1, 4])
    X = dense()
    for part in split_rows(X, labels).values():
        assert np.shares_memory(part, X)
    S = sparse.csr_matrix(X)
    for name, part in split_rows(S, labels).items():
        assert part.nnz == 0 or np.shares_memory(part.data, S.data)
        assert part.nnz == 0 or np.shares_memory(part.indices, S.indices)
        part.check_format(full_check=True)
        np.testing.assert_array_equal((part @ np.eye(5)), X[labels == name])


def test_scattered_rows_are_copied_once() -> None:
    S = sparse.csr_array(dense())
    parts = split_rows(S, LABELS)
    assert sum(part.nnz for part in parts.values()) == S.nnz


def test_an_empty_row_range_of_a_sparse_matrix() -> None:
    S = sparse.csr_array((4, 3))
    assert split_rows(S, [0, 0, 1, 1])["1"].shape == (2, 3)


def test_arrays_and_lists_of_labels_agree() -> None:
    for labels in (np.array([30, 1, 30, 7]), np.array([True, False, True]), np.array(["b", "a", "b"])):
        as_array, as_list = row_positions(labels), row_positions(list(labels))
        assert list(as_array) == list(as_list) == [str(v) for v in dict.fromkeys(labels.tolist())]
        for name in as_array:
            np.testing.assert_array_equal(as_array[name], as_list[name])
    assert list(row_positions([np.int64(1), 1])) == ["1"]


def test_positions_put_results_back() -> None:
    X = dense()
    out = np.full_like(X, np.nan)
    for name, rows in row_positions(LABELS).items():
        out[rows] = split_rows(X, LABELS)[name]
    np.testing.assert_array_equal(out, X)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, "1"], "different values but both read '1'"),
        ([1, 1.0], None),
        ([1.0, float("nan")], "Row 1 has no owner"),
        (["a", None], "Row 1 has no owner"),
        (pd.Series(["a", pd.NA]), "Row 1 has no owner"),
        (pd.to_datetime(pd.Series(["2020-01-01", None])), "Row 1 has no owner"),
        (["a", "b", "c"], "3 labels were given for 2 rows"),
        ([], "No labels"),
        ([["a"], ["b"]], "not a single value"),
    ],
)
def test_bad_labels(labels: object, message: str | None) -> None:
    X = np.ones((2, 2))
    if message is None:
        assert list(split_rows(X, labels)) == ["1", "1.0"]
    else:
        with pytest.raises(DataError, match=message):
            split_rows(X, labels)


def test_even_split() -> None:
    labels = split_evenly(103, 10, seed=4)
    assert sorted(np.bincount(labels)) == [10] * 7 + [11] * 3
    np.testing.assert_array_equal(labels, split_evenly(103, 10, seed=4))
    assert (labels != split_evenly(103, 10, seed=5)).any()
    assert (np.diff(split_evenly(103, 10, seed=None)) >= 0).all()
    with pytest.raises(DataError, match="cannot be dealt"):
        split_evenly(3, 4)


def test_skew_follows_alpha_and_leaves_nobody_empty() -> None:
    y = np.repeat(np.arange(10), 100)

    def concentration(alpha: float) -> float:
        labels = by_label_skew(y, 10, alpha, seed=1)
        assert np.bincount(labels, minlength=10).min() >= 1
        return float(np.mean([np.bincount(labels[y == c], minlength=10).max() / 100 for c in range(10)]))

    assert concentration(0.01) > 0.9 > 0.2 > concentration(1000.0)
    assert (np.bincount(by_label_skew([0, 0, 0], 3, 1e-3)) == 1).all()
    with pytest.raises(DataError, match="alpha"):
        by_label_skew(y, 3, 0.0)


def test_by_class_names_owners_after_classes() -> None:
    assert by_class(np.array([2, 0, 2], dtype="uint8")).tolist() == ["2", "0", "2"]
