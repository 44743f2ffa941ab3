from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from fedfactor import Federation, Shard
from fedfactor.core.algorithm import Meta
from fedfactor.core.client_data import Facts, agree
from fedfactor.core.errors import DataError
from fedfactor.core.grid import grid_federation
from fedfactor.core.input_validation import check_rank

pd = pytest.importorskip("pandas")


class Opener:
    def __init__(self, data):
        self.data, self.calls = data, 0

    def __call__(self):
        self.calls += 1
        return self.data


def frame(columns, rows=2):
    return pd.DataFrame(np.arange(1.0, 1 + rows * len(columns)).reshape(rows, -1), columns=list(columns))


class TestNames:
    def test_are_text_and_sorted_whatever_the_mapping(self):
        one, two = np.ones((1, 2)), np.zeros((2, 2))
        for owners in ({"b": two, "a": one}, {"a": one, "b": two}):
            federation = Federation(owners)
            assert federation.names == tuple(federation) == ("a", "b")
            assert federation.shard("b").n_rows == 2
        assert Federation({2: one, 10: one}).names == ("10", "2")

    def test_of_a_list_are_positions(self):
        federation = Federation([np.ones((1, 2)), np.ones((2, 2))])
        assert federation.names == ("0", "1")
        assert len(federation) == 2

    def test_that_read_alike_collide(self):
        with pytest.raises(DataError, match="share the name '1'"):
            Federation({1: np.ones((1, 2)), "1": np.ones((1, 2))})

    def test_unknown_ones_are_answered_with_the_known(self):
        with pytest.raises(KeyError, match="owners are a"):
            Federation({"a": np.ones((1, 2))}).shard("z")

    def test_nobody(self):
        for owners in ({}, []):
            with pytest.raises(DataError, match="at least one owner"):
                Federation(owners)


class TestLazyOwners:
    def test_are_opened_once_and_only_when_needed(self):
        a, b = Opener(np.ones((3, 2))), Opener(np.ones((4, 2)))
        federation = Federation({"a": a, "b": b})
        assert (a.calls, b.calls) == (0, 0)
        federation.shard("b")
        assert (a.calls, b.calls) == (0, 1)
        federation.prepare()
        federation.prepare()
        assert federation.n_rows == 7
        assert (a.calls, b.calls) == (1, 1)

    def test_may_return_a_shard(self):
        shard = Shard(np.ones((3, 2)))
        assert Federation({"a": lambda: shard}).shard("a") is shard


class TestColumns:
    def test_in_another_order_are_put_in_the_first_owners_order(self):
        federation = Federation({"a": frame("xyz"), "b": frame("zxy")})
        meta = federation.prepare()
        assert federation.feature_names == ("x", "y", "z")
        assert meta.n_features == 3
        np.testing.assert_array_equal(federation.shard("b").X, frame("zxy")[list("xyz")].to_numpy())

    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    def test_reordering_and_casting_take_the_holdout_along(self, layout):
        X, held = np.array([[1.0, 2.0]], np.float32), np.array([[False, True]])
        held = held if layout is np.asarray else layout(np.where(held, X, 0))
        b = Shard(X, ~np.array([[False, True]]), ("y", "x"), held)
        federation = Federation({"a": Shard(np.ones((1, 2)), np.ones((1, 2), bool), ("x", "y")), "b": b})
        federation.prepare()
        kept = federation.shard("b").holdout
        np.testing.assert_array_equal((kept if layout is np.asarray else kept.toarray()) > 0, [[True, False]])
        assert layout is np.asarray or kept.dtype == np.float64

    def test_reordering_takes_the_mask_along(self):
        b = frame("yx")
        b.loc[0, "y"] = np.nan
        federation = Federation({"a": frame("xy"), "b": b}, missing_values=np.nan)
        federation.prepare()
        np.testing.assert_array_equal(federation.shard("b").mask, [[True, False], [True, True]])

    @pytest.mark.parametrize(
        ("a", "b", "words"),
        [
            (frame("xy"), frame("xz"), "clash: 'y' is known only to 'a'"),
            (frame("xy"), np.ones((2, 2)), "'a' names its features but owner 'b' does not"),
            (np.ones((2, 2)), frame("xy"), "'b' names its features but owner 'a' does not"),
            (frame("xx"), frame("xx"), "'x' occurs more than once"),
            (np.ones((2, 2)), np.ones((2, 3)), "'b' has 3 columns but 'a' has 2"),
        ],
    )
    def test_that_do_not_agree(self, a, b, words):
        with pytest.raises(DataError, match=words):
            Federation({"a": a, "b": b}).prepare()

    def test_numbered_ones_are_no_names(self):
        assert Federation({"a": pd.DataFrame(np.ones((2, 3)))}).feature_names is None


class TestDtype:
    @pytest.mark.parametrize(
        ("a", "b", "expected"),
        [
            ("float32", "float32", "float32"),
            ("float32", "float64", "float64"),
            ("float16", "float32", "float32"),
            ("int8", "float32", "float32"),
            ("bool", "bool", "float32"),
        ],
    )
    @pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
    def test_is_one_for_all_owners(self, a, b, expected, layout):
        if layout is not np.asarray and "float16" in (a, b):
            pytest.skip("SciPy has no sparse float16")
        federation = Federation({"a": layout(np.ones((2, 2), dtype=a)), "b": layout(np.ones((2, 2), dtype=b))})
        assert federation.prepare().dtype == expected
        assert {federation.shard(name).dtype for name in federation} == {expected}

    def test_no_copy_when_nothing_is_to_be_done(self):
        X = np.ones((3, 2))
        federation = Federation({"a": X})
        federation.prepare()
        assert np.shares_memory(federation.shard("a").X, X)


class TestValues:
    @pytest.mark.parametrize(
        ("X", "domain", "words"),
        [
            ([[1.0, np.nan]], "real", "contains NaN .owner 'a'"),
            ([[1.0, np.inf]], "real", "contains infinity"),
            ([[1.0, -np.inf]], "real", "contains infinity"),
            ([[1.0, -2.0]], "nonnegative", "has -2"),
            ([[1.0, -2.0]], "binary", "has -2"),
            ([[1.0, 0.5]], "binary", "other than 0 and 1"),
            (np.zeros((0, 2)), "real", "has no rows"),
            ([1.0, 2.0], "real", "Owner 'a': Expected 2D array, got 1D"),
            (np.ones((1, 1, 1)), "real", "got 3D"),
            ([["x", "y"]], "real", "not numbers"),
            ([[1j, 2]], "real", "Complex data not supported"),
        ],
    )
    def test_that_cannot_be_used(self, X, domain, words):
        with pytest.raises(DataError, match=words):
            Federation({"a": X}).prepare(domain)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
    def test_are_looked_at_in_sparse_rows_too(self, value):
        X = sparse.csr_array(np.array([[0.0, value]]))
        with pytest.raises(DataError):
            Federation({"a": X}).prepare()

    def test_sparse_layouts_become_csr(self):
        for layout in (sparse.coo_array, sparse.csc_matrix, sparse.lil_array):
            assert Federation({"a": layout(np.eye(3))}).shard("a").X.format == "csr"

    def test_pandas_sparse_stays_sparse(self):
        rows = pd.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(np.eye(3)), columns=list("xyz"))
        shard = Federation({"a": rows}).shard("a")
        assert sparse.issparse(shard.X)
        assert shard.features == ("x", "y", "z")


class TestScale:
    @pytest.mark.parametrize(("real", "unit"), [("float32", 1e19), ("float64", 1e154), ("float64", 1e200)])
    def test_squares_that_overflow_are_refused(self, real, unit):
        with pytest.raises(DataError, match=f"Owner 'a' has values up to .* do not fit into {real}"):
            Federation({"a": np.full((30, 40), unit, real)}).prepare()

    def test_one_large_value_may_stand_among_many_small_ones(self):
        X = np.zeros((1000, 1000), np.float32)
        X[3, 4] = 1e18
        Federation({"a": X}).prepare()

    @pytest.mark.parametrize(("real", "unit"), [("float32", 1e-20), ("float64", 1e-160)])
    def test_squares_that_vanish_are_refused(self, real, unit):
        small = np.full((3, 4), unit, real)
        with pytest.raises(DataError, match=r"No value of any owner exceeds 1e-.*smaller units"):
            Federation({"a": small}).prepare()
        Federation({"a": small, "b": np.ones((3, 4), real)}).prepare()  # next to ordinary rows they are as good as zero

    def test_nothing_but_zeros_is_fine(self):
        Federation({"a": np.zeros((3, 4))}).prepare()


class TestRowsInOddDress:
    def test_cells_stored_twice_count_once_with_their_sum(self):
        twice = sparse.csr_array((np.array([1.0, 2.0, 4.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
        shard = Federation({"a": twice}).shard("a")
        np.testing.assert_array_equal(shard.X.data, [3.0, 4.0])
        assert twice.nnz == 3  # the caller's own matrix stays
        assert Federation({"a": Shard(twice)}).shard("a").X.nnz == 2

    def test_sound_sparse_rows_are_not_copied(self):
        X = sparse.csr_array(np.eye(3))
        held = Federation({"a": X}).shard("a").X
        assert held.data is X.data
        assert held.indices is X.indices
        assert held is not X  # what is remembered of it ends with the federation

    def test_one_matrix_is_no_federation(self):
        for X in (np.ones((3, 2)), sparse.csr_matrix(np.ones((3, 2))), frame("xy"), "abc"):
            with pytest.raises(DataError, match="owners by name"):
                Federation(X)

    def test_the_mask_of_a_masked_array_is_not_lost(self):
        with pytest.raises(DataError, match=r"masked array.*X\.filled\(numpy\.nan\)"):
            Federation({"a": np.ma.masked_array(np.ones((2, 2)), mask=np.eye(2))}).shard("a")

    def test_columns_with_a_missing_value_of_their_own(self):
        X = pd.DataFrame({"x": pd.array([1, None, 3], dtype="Int64"), "y": [1.0, 2.0, 3.0]})
        shard = Federation({"a": X}, missing_values=np.nan).shard("a")
        np.testing.assert_array_equal(shard.mask, [[True, True], [False, True], [True, True]])
        with pytest.raises(DataError, match="contains NaN"):
            Federation({"a": X}).prepare()

    def test_dates_are_no_numbers(self):
        with pytest.raises(DataError, match="dates"):
            Federation({"a": np.ones((2, 2)).astype("datetime64[D]")}).shard("a")

    @pytest.mark.parametrize(
        ("shard", "words"),
        [
            (Shard(np.ones(3)), "must be a matrix"),
            (Shard([[1.0, 2.0]]), "must be a matrix"),
            (Shard(np.ones((2, 3)), features=("x", "y")), "names 2 features but has 3 columns"),
            (Shard(np.ones((2, 3)), mask=np.ones((3, 3), bool)), "mask of a shard has shape"),
        ],
    )
    def test_shards_made_by_hand_are_looked_at(self, shard, words):
        with pytest.raises(DataError, match=f"Owner 'a': .*{words}"):
            Federation({"a": shard}).shard("a")

    def test_shards_made_by_hand_of_other_layouts_become_csr(self):
        assert Federation({"a": Shard(sparse.coo_array(np.eye(2)))}).shard("a").X.format == "csr"


class TestMissing:
    def test_a_value_of_double_precision_is_found_in_single(self):
        X = np.array([[0.1, 1.0]], np.float32)
        for mark in (0.1, np.float64(0.1)):
            np.testing.assert_array_equal(Federation({"a": X}, missing_values=mark).shard("a").mask, [[False, True]])

    def test_none_makes_no_mask(self):
        assert Federation({"a": np.ones((2, 2))}).prepare().masked is False

    @pytest.mark.parametrize("mark", [np.nan, -1.0, 0.0])
    def test_a_value_marks_cells(self, mark):
        X = np.array([[mark, 2.0], [3.0, mark]])
        federation = Federation({"a": X}, missing_values=mark)
        assert federation.prepare().masked
        shard = federation.shard("a")
        np.testing.assert_array_equal(shard.mask, [[False, True], [True, False]])
        np.testing.assert_array_equal(shard.X, [[0, 2], [3, 0]])
        assert np.isnan(X[0, 0]) == np.isnan(mark), "the owner's own array was changed"

    def test_unstored(self):
        X = sparse.csr_array(np.array([[0.0, 2.0]]))
        assert Federation({"a": X}, missing_values="unstored").shard("a").mask == "stored"

    def test_zero_in_a_sparse_matrix_drops_stored_zeros(self):
        X = sparse.csr_array((np.array([0.0, 2.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
        shard = Federation({"a": X}, missing_values=0).shard("a")
        assert (shard.mask, shard.X.nnz, X.nnz) == ("stored", 1, 2)

    @pytest.mark.parametrize(
        ("X", "mark", "words"),
        [
            (np.ones((1, 2)), "unstored", "needs a sparse matrix"),
            (np.ones((1, 2)), "none", "is not known"),
            (sparse.csr_array(np.ones((1, 2))), np.nan, "cannot be distinguished"),
            (np.full((1, 2), np.nan), np.nan, "no observed cell"),
        ],
    )
    def test_rules_that_do_not_fit(self, X, mark, words):
        with pytest.raises(DataError, match=words):
            Federation({"a": X}, missing_values=mark).prepare()

    def test_a_mask_beside_complete_owners(self):
        federation = Federation({"a": np.ones((1, 2)), "b": np.array([[1.0, np.nan]])}, missing_values=np.nan)
        assert federation.prepare().masked


@pytest.mark.parametrize("rank", [0, -1, 1.5, 4, 7])
def test_ranks_that_the_data_cannot_carry(rank):
    with pytest.raises(DataError, match="whole number from 1 to 3"):
        check_rank(rank, Meta(5, ("a",), n_rows=3))


@pytest.mark.parametrize("rank", [1, 3, np.int64(2)])
def test_ranks_that_it_can(rank):
    check_rank(rank, Meta(5, ("a",), n_rows=3))


class TestAgreement:
    def facts(self, name="a", **other):
        known = {"n_rows": 2, "n_features": 3, "library": "numpy", "dtype": "float64", "masked": False}
        return Facts(name, **{**known, "features": None, "bounds": None, **other})

    @pytest.mark.parametrize(
        ("other", "says"),
        [
            ({"n_rows": 0}, "Owner 'b' has no rows"),
            ({"n_features": 4}, "'b' has 4 columns but 'a' has 3"),
            ({"library": "torch"}, "'b' brings torch data but 'a' brings numpy"),
            ({"features": ("x", "y", "z")}, "'b' names its features but owner 'a' does not"),
            ({"features": ("x", "y"), "n_features": 2}, "'b' names its features but owner 'a' does not"),
        ],
    )
    def test_what_does_not_fit_together(self, other, says):
        with pytest.raises(DataError, match=says):
            agree([self.facts(), self.facts("b", **other)])

    def test_what_is_public(self):
        meta = agree([self.facts(), self.facts("b", n_rows=5, masked=True)])
        assert (meta.n_rows, meta.n_features, meta.clients, meta.masked) == (7, 3, ("a", "b"), True)
        assert not agree([self.facts()]).masked

    @pytest.mark.parametrize(
        ("one", "other", "dtype"),
        [
            ("float32", "float32", "float32"),
            ("float32", "bfloat16", "float32"),
            ("float16", "float16", "float32"),
            ("float64", "float32", "float64"),
            ("bfloat16", "float64", "float64"),
        ],
    )
    def test_one_type_for_all(self, one, other, dtype):
        assert agree([self.facts(dtype=one), self.facts("b", dtype=other)]).dtype == dtype


class TestShards:
    def test_cells_that_an_error_is_about(self):
        X, mask, held = np.ones((1, 2)), np.array([[True, False]]), np.array([[False, True]])
        assert Shard(X, mask).scored == (X, mask)
        assert Shard(X, mask, holdout=held).scored == (X, held)
        stored = sparse.csr_array(held.astype(float))
        assert Shard(X, mask, holdout=stored).scored == (stored, "stored")

    def test_of_a_shard_is_itself(self):
        shard = Shard(np.ones((1, 2)))
        assert Shard.of(shard) is shard
        for layout in (sparse.coo_array, sparse.csc_array):  # loops over rows would read columns as rows
            turned = Shard.of(Shard(layout(np.eye(2)), features=("x", "y")))
            assert turned.X.format == "csr"
        blocks = grid_federation(sparse.csr_array(np.ones((4, 3))), 2).shard("0")
        assert Shard.of(blocks) is blocks
        assert turned.features == ("x", "y")

    def test_what_the_rows_say_of_missing_cells_is_heard_unless_one_says_otherwise(self):
        class Table:
            X, features, row_ids, id_name, missing_values = np.array([[1.0, -1.0]]), None, ("p",), "who", -1.0

        shard = Shard.of(Table())
        assert shard.mask.tolist() == [[True, False]]
        assert (shard.row_ids, shard.id_name) == (("p",), "who")
        assert Shard.of(Table(), 1.0).mask.tolist() == [[False, True]]

    @pytest.mark.parametrize(("given", "halves", "kept"), [("bfloat16", True, True), ("bfloat16", False, False)])
    def test_half_precision_stays_where_the_method_can_do_with_it(self, given, halves, kept):
        torch = pytest.importorskip("torch")
        shard = Shard(torch.ones((2, 2), dtype=getattr(torch, given)))
        federation = Federation({"a": shard})
        meta = federation.prepare(halves=halves)
        assert meta.dtype == "float32"
        assert federation.shard("a").dtype == ("bfloat16" if kept else "float32")
        federation = Federation({"a": shard, "b": torch.ones((2, 2), dtype=torch.float64)})
        federation.prepare(halves=halves)
        assert federation.shard("a").dtype == "float64"

    def test_half_precision_is_not_kept_unless_asked_for(self):
        torch = pytest.importorskip("torch")
        federation = Federation({"a": Shard(torch.ones((2, 2), dtype=torch.bfloat16))})
        federation.prepare()
        assert federation.shard("a").dtype == "float32"
        federation = Federation({"a": Shard(torch.ones((2, 2), dtype=torch.bfloat16))})
        federation.adopt(federation.facts("a"), Meta(2, ("a",), "float32"), "nonnegative")
        assert federation.shard("a").dtype == "float32"

    def test_a_workers_opener(self):
        opener = Opener(np.ones((1, 2)))
        federation = Federation({"a": opener, "b": np.ones((2, 2))})
        assert federation.opener("a") is opener
        assert federation.opener("b") is federation.shard("b")

    @pytest.mark.parametrize("owners", [np.ones((2, 2)), frame("xy"), "abc", b"abc"])
    def test_one_matrix_is_no_federation(self, owners):
        with pytest.raises(DataError, match="needs owners by name"):
            Federation(owners)

    def test_the_owner_of_bad_rows_is_named(self):
        with pytest.raises(DataError, match="Owner 'b': Expected 2D array"):
            Federation({"a": np.ones((1, 2)), "b": np.ones(2)}).prepare()

    def test_columns_of_a_grid_are_not_reordered(self):
        grid = grid_federation(frame("xyz", 4), 2)
        first = Facts("z", 4, 3, "numpy", "float64", False, ("z", "y", "x"), None)
        with pytest.raises(DataError, match="columns of node '0' are in another order"):
            grid.adopt(first, Meta(3, ("0", "1")), "nonnegative")
