"""Columns that few rows fill: counted, withheld, merged or refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from fedfactor.core.client_data import Federation, Shard
from fedfactor.privacy.minimums import Minimums, PrivacyWarning, RefusedError
from fedfactor.privacy.rare_columns import Support, column_counts, column_support, rare_columns, without_columns
from fedfactor.privacy.secure_aggregation.transform import SecureSum

FORMS = [np.asarray, sparse.csr_array]


def dense(X):
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_fill_a_column_are_counted(form):
    assert column_counts(Shard(form(np.array([[1.0, 0, 2], [0, 0, 3]])))).tolist() == [1, 0, 2]


def test_stored_zeros_and_cells_that_were_not_seen_fill_nothing():
    stored = sparse.csr_array((np.array([0.0, 2.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 3))
    assert column_counts(Shard(stored, "stored")).tolist() == [0, 1, 0]
    seen = np.array([[True, False], [True, True]])
    assert column_counts(Shard(np.ones((2, 2)), seen)).tolist() == [2, 1]
    torch = pytest.importorskip("torch")
    assert column_counts(Shard(torch.tensor([[1.0, 0.0]]))).tolist() == [1, 0]


def test_too_few_rows_or_too_few_clients_are_too_few():
    support = Support(np.array([0, 4, 5, 9, 9]), np.array([0, 2, 2, 1, 2]))
    assert support.below(Minimums()).tolist() == [1, 3]


def test_counts_add_up_over_clients():
    X = np.array([[1.0, 0, 2], [0, 0, 3]])
    found = column_support(Federation({"a": X, "b": X[:1], "c": X}), SecureSum(), b"run")
    assert found.rows.tolist() == [3, 0, 5]
    assert found.clients.tolist() == [3, 0, 3]


@pytest.mark.parametrize("form", FORMS)
def test_columns_go_to_zero_or_into_the_first_of_them(form):
    X = np.array([[1.0, 2, 3, 4], [5, 0, 0, 6]], "f4")
    shard = Shard(form(X), None, tuple("wxyz"), np.zeros((2, 4), bool))
    gone = without_columns(shard, np.array([1, 3]), merge=False)
    assert dense(gone.X).tolist() == [[1, 0, 3, 0], [5, 0, 0, 0]]
    merged = without_columns(shard, np.array([1, 3]), merge=True)
    assert dense(merged.X).tolist() == [[1, 6, 3, 0], [5, 6, 0, 0]]
    for made in (gone, merged):
        assert made.X.dtype == np.float32
        assert made.features == tuple("wxyz")
        assert made.holdout is shard.holdout
    assert dense(shard.X).tolist() == X.tolist()
    if form is not np.asarray:
        assert gone.X.nnz == 3
        assert merged.X.nnz == 5


def test_columns_of_a_tensor():
    torch = pytest.importorskip("torch")
    X = torch.tensor([[1.0, 2.0, 3.0]])
    assert without_columns(Shard(X), np.array([0, 2]), merge=True).X.tolist() == [[4.0, 2.0, 0.0]]
    assert X.tolist() == [[1.0, 2.0, 3.0]]


@pytest.fixture
def owners():
    rng = np.random.default_rng(0)
    made = {}
    for place, name in enumerate("abc"):
        X = rng.random((6, 5)) + 0.1
        X[:, 3] = 0
        X[:, 4] = 0
        X[0, 3 + place % 2] = 1.0  # column 3 is filled by a and c, column 4 by b, once each
        made[name] = X
    return Federation(made)


def asked(owners, simulation=True, **options):
    return rare_columns(owners, Minimums(**options), SecureSum(), b"run", simulation=simulation)


def test_what_becomes_of_them(owners):
    work, rare = asked(owners)
    assert rare.tolist() == [3, 4]
    assert all((work.shard(name).X[:, 3:] == 0).all() for name in "abc")
    same, none = asked(owners, allow=("rare-columns",))
    assert same is owners
    assert none.size == 0
    same, none = asked(owners, column_rows=1, column_clients=1)
    assert same is owners
    assert none.size == 0


def test_merged_they_are_shown_if_enough_rows_fill_them(owners):
    work, rare = asked(owners, rare_columns="merge", column_rows=3)
    assert rare.tolist() == [3, 4]
    assert [work.shard(name).X[0, 3] for name in "abc"] == [1, 1, 1]
    work, rare = asked(owners, rare_columns="merge", column_rows=4)
    assert rare.tolist() == [3, 4]
    assert all((work.shard(name).X[:, 3:] == 0).all() for name in "abc")


def test_refused_between_parties_and_warned_of_in_a_simulation(owners):
    with pytest.raises(
        RefusedError, match=r"2 columns are filled by fewer than 5 rows or 2 clients \(the first is col"
    ):
        asked(owners, simulation=False, rare_columns="refuse")
    with pytest.warns(PrivacyWarning, match="a real federation refuses it"):
        same, none = asked(owners, rare_columns="refuse")
    assert same is owners
    assert none.size == 0
