"""Rows of one subject: how many of them count."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.errors import DataError
from fedfactor.privacy.subjects import cap_subjects, keep_only, subject_rows

X = np.array([[7.0, 1], [8, 2], [7, 3], [7, 4], [8, 5]])
FORMS = [np.asarray, sparse.csr_array]


def dense(M):
    return M.toarray() if sparse.issparse(M) else M


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("cap", "kept"), [(1, [1, 1, 0, 0, 0]), (2, [1, 1, 1, 0, 1]), (3, [1] * 5)])
def test_the_first_rows_of_each_subject_count(form, cap, kept):
    shard = Shard(form(X), features=("who", "x"))
    rows, columns = subject_rows("a", shard, "who", cap)
    assert rows.tolist() == kept
    assert columns.tolist() == [0, 1]
    federation = cap_subjects(Federation({"a": shard}), "who", cap)
    found = dense(federation.shard("a").X)
    assert found.tolist() == (np.array(kept)[:, None] * X * [0, 1]).tolist()
    assert federation.shard("a").features == ("who", "x")


def test_ids_beside_the_rows_and_by_owner():
    ids = ("p", "q", "p", "p", "q")
    shard = Shard(X, row_ids=ids, id_name="who")
    rows, columns = subject_rows("a", shard, "who", 1)
    assert rows.tolist() == [1, 1, 0, 0, 0]
    assert columns.tolist() == [1, 1]
    assert subject_rows("a", Shard(X), {"a": ids}, 2)[0].tolist() == [1, 1, 1, 0, 1]


@pytest.mark.parametrize(
    "shard",
    [Shard(X), Shard(X, features=("x", "y")), Shard(X, row_ids=("p",) * 5, id_name="other"), Shard(X, id_name="who")],
)
def test_a_subject_that_nobody_names(shard):
    with pytest.raises(DataError, match="'a' has no column 'who' to name subjects"):
        subject_rows("a", shard, "who", 1)


def test_one_id_a_row():
    with pytest.raises(DataError, match="has 5 rows but 4 subject ids"):
        subject_rows("a", Shard(X), {"a": np.arange(4)}, 1)


@pytest.mark.parametrize("cap", [0, -1, 1.5])
def test_caps_that_are_none(cap):
    with pytest.raises(ValueError, match="must be a whole number of at least 1"):
        cap_subjects(Federation({"a": X}), {"a": np.arange(5)}, cap)


@pytest.mark.parametrize("form", FORMS)
def test_other_rows_and_columns_go_to_zero(form):
    shard = Shard(form(X.astype("f4")))
    kept = keep_only(shard, np.array([1.0, 0, 0, 0, 1]), np.array([0.0, 1.0])).X
    assert kept.dtype == np.float32
    assert dense(kept).tolist() == [[0, 1], [0, 0], [0, 0], [0, 0], [0, 5]]
    assert form is np.asarray or kept.nnz == 2


@pytest.mark.parametrize(("kind", "most"), [("f2", 2**11), ("f4", 2**24), ("f8", 2**53)])
def test_ids_up_to_the_last_that_is_kept_apart(kind, most):
    """The first number beyond is rounded to the power of two itself, which was let through."""
    ids = np.array([[1.0, 0], [most - 1, 0]], kind)
    subject_rows("a", Shard(ids, features=("who", "x")), "who", 1)
    for odd in (most, most + 1, -most, 2 * most):
        ids = np.array([[1.0, 0], [odd, 0]]).astype(kind)
        with pytest.raises(DataError, match=f"of {most:,} or beyond"):
            subject_rows("a", Shard(ids, features=("who", "x")), "who", 1)
        with pytest.raises(DataError, match=f"of {most:,} or beyond"):
            subject_rows("a", Shard(X[:2]), {"a": ids[:, 0]}, 1)


@pytest.mark.parametrize("odd", [0.1, np.nan, np.inf])
def test_ids_that_are_no_whole_numbers_are_refused(odd):
    ids = np.array([[1.0, 0], [odd, 0]], "f4")
    with pytest.raises(DataError, match="not whole numbers" if odd != np.inf else "or beyond"):
        subject_rows("a", Shard(ids, features=("who", "x")), "who", 1)
