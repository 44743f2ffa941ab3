"""Rows as they are opened: what they become, what is refused, and where the owner is sent to look."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from fedfactor.core import input_validation as row_checks
from fedfactor.core.errors import DataError
from fedfactor.core.input_validation import (
    as_matrix,
    as_real,
    check_features,
    check_frame,
    check_parts,
    check_scale,
    check_tiling,
    check_values,
    dtype_name,
    is_frame,
    is_named,
    is_sparse,
    library,
    real_dtype,
    row_ids_of,
    wake_card,
)

pd = pytest.importorskip("pandas")


class OnCard:
    """What a matrix on a card shows of itself, without one."""

    __cuda_array_interface__ = ()
    is_cuda = True
    device = "cpu"
    shape = (2, 3)
    dtype = np.dtype("float32")


class TestWhatItIs:
    def test_sparse_matrices_have_cells_and_can_become_csr(self):
        assert is_sparse(sparse.coo_array(np.eye(2)))
        assert not is_sparse(np.eye(2))
        assert not is_sparse(SimpleNamespace(nnz=3))

    def test_libraries(self):
        torch = pytest.importorskip("torch")
        assert library(np.eye(2)) == library(sparse.csr_array(np.eye(2))) == "numpy"
        assert library(torch.eye(2)) == library(SimpleNamespace(library="torch")) == "torch"
        assert dtype_name(torch.eye(2)) == dtype_name(np.eye(2, dtype="f4")) == "float32"

    def test_frames_and_tables(self):
        assert is_frame(pd.DataFrame({"a": [1]}))
        assert not is_frame(SimpleNamespace(columns=["a"]))
        assert is_named(SimpleNamespace(X=1, var_names=["a"]))
        assert is_named(SimpleNamespace(X=1, row_ids=["a"]))
        assert not is_named(SimpleNamespace(X=1))
        assert not is_named(SimpleNamespace(var_names=["a"]))

    def test_only_rows_on_a_card_load_its_linear_algebra(self, monkeypatch):
        called = []
        linalg = SimpleNamespace(eigvalsh=called.append, svd=called.append, qr=called.append)
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(eye=lambda n, device: (n, device), linalg=linalg))
        wake_card(np.eye(2))
        wake_card(SimpleNamespace())
        assert not called
        wake_card(OnCard())
        assert called == [(2, "cpu")] * 3


class TestMatrix:
    def test_names_come_with_tables_and_with_cells(self):
        X = np.ones((2, 2))
        assert as_matrix(SimpleNamespace(X=X, row_ids=None, features=("a", 2)))[1] == ("a", "2")
        assert as_matrix(SimpleNamespace(X=X, row_ids=None, features=None))[1] is None
        assert as_matrix(SimpleNamespace(X=X, var_names=["g", "h"]))[1] == ("g", "h")

    def test_what_lies_on_a_card_stays_there(self):
        rows = OnCard()
        assert as_matrix(rows)[0] is rows

    def test_floats_are_not_copied(self):
        X = np.ones((2, 2))
        assert as_matrix(X)[0] is X

    def test_cells_stored_twice_are_added_up_in_a_copy(self):
        twice = sparse.csr_array((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
        assert as_matrix(twice)[0].data.tolist() == [3.0]
        assert twice.nnz == 2
        once = sparse.csr_array(np.eye(3))
        assert as_matrix(once)[0] is once

    @pytest.mark.parametrize("shape", [(3,), (1, 2, 3)])
    def test_needs_rows_and_columns(self, shape):
        with pytest.raises(DataError, match=f"got {len(shape)}D array instead"):
            as_matrix(np.ones(shape))

    def test_a_frame_that_knows_its_own_missing_cells(self):
        X, names = as_matrix(pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [0.5, 1.5]}))
        np.testing.assert_array_equal(X, [[1.0, 0.5], [np.nan, 1.5]])
        assert names == ("a", "b")

    def test_a_sparse_frame_stays_sparse_and_a_half_sparse_one_does_not(self):
        column = pd.arrays.SparseArray([0.0, 2.0], fill_value=0)
        X, _ = as_matrix(pd.DataFrame({"a": column, "b": column}))
        assert is_sparse(X)
        assert X.nnz == 2
        assert isinstance(as_matrix(pd.DataFrame({"a": column, "b": [1.0, 2.0]}))[0], np.ndarray)

    def test_a_sparse_frame_filled_with_nan_has_unknown_cells(self):
        unknown, zero = pd.arrays.SparseArray([np.nan, 2.0]), pd.arrays.SparseArray([0.0, 2.0], fill_value=0)
        for frame in (pd.DataFrame({"a": unknown, "b": unknown}), pd.DataFrame({"a": unknown, "b": zero})):
            np.testing.assert_array_equal(as_matrix(frame)[0], frame.sparse.to_dense())

    @pytest.mark.parametrize(
        ("kind", "becomes"),
        [
            ("bool", "float32"), ("uint8", "float32"), ("int8", "float32"), ("int16", "float32"),
            ("float16", "float32"), ("bfloat16", "float32"), ("int32", "float64"), ("int64", "float64"),
        ],
    )  # fmt: skip
    def test_tensors_become_floats_as_arrays_do(self, kind, becomes):
        torch = pytest.importorskip("torch")
        assert as_matrix(torch.ones((2, 2)).to(getattr(torch, kind)))[0].dtype == getattr(torch, becomes)

    def test_half_precision_on_a_card_is_kept(self):
        class Half:
            dtype, is_cuda, shape = "torch.bfloat16", True, (1, 1)

            def detach(self):
                return self

        rows = Half()
        assert as_matrix(rows)[0] is rows

    def test_numbers_as_text_are_read_and_words_are_not(self):
        assert as_matrix(np.array([["1", "2.5"]]))[0].tolist() == [[1.0, 2.5]]
        assert as_matrix(np.array([[1, 2.5]], object))[0].tolist() == [[1.0, 2.5]]
        with pytest.raises(DataError, match="The values are not numbers"):
            as_matrix(np.array([["1", "x"]]))

    @pytest.mark.parametrize(
        ("kind", "size", "real"),
        [
            ("b", 1, "float32"), ("i", 2, "float32"), ("u", 2, "float32"), ("f", 2, "float32"), ("f", 4, "float32"),
            ("i", 4, "float64"), ("u", 4, "float64"), ("i", 8, "float64"), ("f", 8, "float64"), ("f", 16, "float64"),
        ],
    )  # fmt: skip
    def test_one_rule_for_types(self, kind, size, real):
        assert real_dtype(kind, size) == real

    @pytest.mark.parametrize(
        ("values", "says"),
        [
            (np.zeros((1, 1), "M8[s]"), "The values are not real numbers but dates (datetime64[s]): Encode or drop"),
            (np.zeros((1, 1), "m8[s]"), "but spans of time (timedelta64[s]): Encode or drop them first."),
            (np.zeros((1, 1), complex), "(complex128): Complex data not supported. Use X.real, or the magnitudes"),
        ],
    )
    def test_what_is_no_real_number_is_named(self, values, says):
        with pytest.raises(DataError) as raised:
            as_real(values)
        assert says in str(raised.value)
        with pytest.raises(DataError, match=r"^pixels: the values are not"):
            as_real(values, "pixels")

    def test_a_cast_map_is_no_map_any_more(self, tmp_path):
        small = np.memmap(tmp_path / "small", "uint8", "w+", shape=(2, 2))
        right = np.memmap(tmp_path / "right", "float32", "w+", shape=(2, 2))
        assert type(as_real(small)) is np.ndarray
        assert as_real(right) is right


class TestRowIds:
    def test_come_with_tables_and_cells(self):
        assert row_ids_of(SimpleNamespace(X=1, row_ids=(7, "b"))) == ("7", "b")
        assert row_ids_of(SimpleNamespace(X=1, row_ids=None)) is None
        assert row_ids_of(SimpleNamespace(X=1, var_names=[], obs_names=["c"])) == ("c",)

    def test_are_an_index_that_somebody_set(self):
        frame = pd.DataFrame({"a": [1.0, 2.0]})
        assert row_ids_of(frame) is None
        assert row_ids_of(frame.set_axis([3, 4])) is None
        assert row_ids_of(frame.set_axis(pd.Index([3, 4], dtype="uint8"))) is None
        assert row_ids_of(frame.set_axis(["p", "q"])) == ("p", "q")
        assert row_ids_of(frame.set_axis(pd.Index([3, 4], name="who"))) == ("3", "4")

    def test_are_not_guessed_from_anything_else(self):
        assert row_ids_of(np.ones((2, 2))) is None
        assert row_ids_of(pd.Series([1.0], ["a"])) is None  # an index, but no columns
        assert row_ids_of(SimpleNamespace(columns=["a"], to_numpy=None)) is None  # polars: no index
        assert row_ids_of(SimpleNamespace(columns=["a"], to_numpy=None, index=lambda: None)) is None


class TestFrames:
    def test_ids_are_refused_where_name_and_values_say_so(self):
        check_frame(pd.DataFrame({"patient_id": [1, 1, 2]}))
        check_frame(pd.DataFrame({"glucose": [1, 2, 3]}))
        check_frame(pd.DataFrame({3: [1, 2, 3]}))
        check_frame(pd.DataFrame({"patient_id": [True, False, True]}))
        for values in ([1, 2, 3], [1.0, 2.0, 3.0], np.array([1, 2, 3], "uint8")):
            with pytest.raises(DataError, match="column 'patient_id' looks like identifiers"):
                check_frame(pd.DataFrame({"age": [4, 5, 6], "patient_id": values}))

    @pytest.mark.parametrize("values", [pd.to_datetime(["2020-01-01"]), pd.to_timedelta([3], "D")])
    def test_dates_and_spans_are_named(self, values):
        with pytest.raises(DataError, match="column 'when' holds dates or times"):
            check_frame(pd.DataFrame({"when": values}))

    def test_text_is_named_with_its_place(self):
        check_frame(pd.DataFrame({"a": ["1", "2.5"], "b": [None, 3]}, dtype=object))
        with pytest.raises(DataError, match=r"column 'a' holds 'high' .*in row 1\."):
            check_frame(pd.DataFrame({"a": ["1", "high"]}))

    def test_two_columns_of_one_name_are_left_to_others(self):
        check_frame(pd.DataFrame([[1, "x"]], columns=["a", "a"]))


class TestParts:
    def test_that_fit_are_returned_as_they_are(self):
        X = np.ones((2, 3))
        assert check_parts(X, np.ones((2, 3), bool), ("a", "b", "c")) is X
        assert check_parts(X, "stored", None) is X

    @pytest.mark.parametrize(
        ("X", "mask", "features", "says"),
        [
            (np.ones(3), None, None, "must be a matrix"),
            ([[1.0]], None, None, "must be a matrix"),
            (np.ones((2, 3)), None, ("a",), "names 1 features but has 3 columns"),
            (np.ones((2, 3)), np.ones((2, 2), bool), None, "mask of a shard has shape"),
        ],
    )
    def test_that_do_not_fit(self, X, mask, features, says):
        with pytest.raises(DataError, match=says):
            check_parts(X, mask, features)

    def test_sparse_layouts(self):
        X = sparse.csr_array(np.eye(2))
        assert check_parts(X, None, None) is X
        for layout in (sparse.coo_array, sparse.csc_array):
            assert check_parts(layout(np.eye(2)), None, None).format == "csr"
        columns = sparse.csc_array(np.eye(2))
        assert check_parts(columns, None, None, grid=True) is columns
        assert check_parts(sparse.coo_array(np.eye(2)), None, None, grid=True).format == "csr"


class TestValues:
    def test_the_largest_size_is_returned(self):
        assert check_values("a", np.array([[-3.0, 2.0]]), None, "real") == 3.0
        assert check_values("a", np.array([[-3.0], [4.0]]), None, "real") == 4.0
        assert check_values("a", np.zeros((0, 3)), None, "nonnegative") == 0.0
        assert check_values("a", sparse.csr_array((2, 3)), None, "nonnegative") == 0.0

    def test_blocks_hold_all_rows(self, monkeypatch):
        monkeypatch.setattr(row_checks, "_BLOCK", 6)
        X = np.arange(42.0).reshape(14, 3)
        for place in range(len(X)):
            assert check_values("a", np.roll(X, place, 0), None, "real") == 41.0
        with pytest.raises(DataError, match="-1 in row 13, column 2"):
            check_values("a", np.where(X == 41, -1.0, X), None, "nonnegative")

    def test_tensors_and_rows_that_a_card_sees_by_blocks(self):
        torch = pytest.importorskip("torch")
        rows = torch.tensor([[0.0, 5.0], [7.0, 0.0]])
        assert check_values("a", rows, None, "nonnegative") == 7.0
        with warnings.catch_warnings():  # of torch's own, about the layout
            warnings.simplefilter("ignore", UserWarning)
            assert check_values("a", rows.to_sparse_csr(), None, "nonnegative") == 7.0
        assert check_values("a", SimpleNamespace(rows=np.array([[2.0]])), None, "nonnegative") == 2.0
        with pytest.raises(DataError, match=r"contains NaN \(owner 'a'\)"):
            check_values("a", rows * torch.nan, None, "nonnegative")

    def test_nothing_observed(self):
        with pytest.raises(DataError, match="'a' has no observed cell"):
            check_values("a", np.zeros((1, 2)), np.zeros((1, 2), bool), "nonnegative")
        check_values("a", np.zeros((1, 2)), np.array([[True, False]]), "nonnegative")
        check_values("a", sparse.csr_array(np.eye(2)), "stored", "nonnegative")

    @pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize(
        ("value", "says"),
        [
            (np.nan, r"contains NaN \(owner 'a' in row 1, column 2\).*pass missing_values=numpy.nan"),
            (np.inf, r"contains infinity \(owner 'a' in row 1, column 2\).*: clip them"),
            (-np.inf, "contains infinity"),
            (-2.0, r"owner 'a' has -2 in row 1, column 2, but the factors are non-negative"),
            (3.0, r"values other than 0 and 1 \(up to 3\)"),
        ],
    )
    def test_what_cannot_be_taken_is_named_with_its_place(self, form, value, says):
        X = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, value], [1.0, 1.0, value]])
        with pytest.raises(DataError, match=says):
            check_values("a", form(X), None, "binary")

    def test_names_tell_where_to_look(self):
        with pytest.raises(DataError, match=r"in row 0 \(id 'p7'\), column 'salt'"):
            check_values("a", np.array([[1.0, -1.0]]), None, "nonnegative", ("sugar", "salt"), ("p7",))

    def test_no_place_for_what_is_nowhere(self):
        for X in (np.eye(2), sparse.csr_array(np.eye(2))):
            assert row_checks._place(X, lambda part: part == 9, None, None) == ""

    def test_domains(self):
        X = np.array([[0.0, 1.0, 0.5]])
        assert check_values("a", X, None, "nonnegative") == 1.0
        assert check_values("a", X > 0.7, None, "binary") == 1.0
        assert check_values("a", -X, None, "real") == 1.0

    @pytest.mark.parametrize(
        ("X", "fits"),
        [
            (np.full((1, 100), 1e19, np.float32), False),
            (np.eye(1, 100, dtype=np.float32) * np.float32(1e19), True),
            (np.full((1, 100), 1e18, np.float32), True),
            (np.full((1, 100), 1e19), True),
            (np.full((1, 2), 1e154), False),
        ],
    )
    def test_squares_must_fit(self, X, fits):
        if fits:
            check_values("a", X, None, "nonnegative")
        else:
            with pytest.raises(DataError, match=f"squares do not fit into {X.dtype}"):
                check_values("a", X, None, "nonnegative")

    def test_squares_of_half_precision_are_summed_in_single(self):
        torch = pytest.importorskip("torch")
        assert check_values("a", torch.full((1, 9), 1e30, dtype=torch.bfloat16), None, "nonnegative") > 9e29

    def test_squares_must_not_vanish(self):
        check_scale(0.0, "float32")
        check_scale(2e-19, "float32")
        check_scale(1e-19, "float64")
        with pytest.raises(DataError, match="exceeds 1e-19, whose square is nothing in float32"):
            check_scale(1e-19, "float32")


class TestNames:
    def test_in_the_same_order_need_nothing(self):
        assert check_features("b", ("x", "y"), "a", ("x", "y")) is None
        assert check_features("b", None, "a", None) is None

    def test_in_another_order_say_which_column_goes_where(self):
        assert check_features("b", ("z", "x", "y"), "a", ("x", "y", "z")) == [1, 2, 0]

    @pytest.mark.parametrize(
        ("count", "says"),
        [(5, "'0', '1', '2', '3', '4' are known only"), (6, "'4' and 1 more are known only"), (8, "and 3 more")],
    )
    def test_that_one_side_lacks_are_listed(self, count, says):
        names = tuple(map(str, range(count)))
        with pytest.raises(DataError, match=says):
            check_features("b", (*names, "x"), "a", ("x",))
        with pytest.raises(DataError, match=r"; .* are known only to 'b'"):
            check_features("b", (*names, "x"), "a", ("x", "y"))


class TestTiling:
    def test_of_rows_alone_and_of_whole_grids(self):
        check_tiling([None, None], 4)
        check_tiling([(0, 3, 0, 2), (3, 5, 2, 4)], 4)
        check_tiling([(3, 5, 2, 4), (0, 3, 0, 2)], 4)

    @pytest.mark.parametrize(
        ("bounds", "says"),
        [
            ([(0, 3, 0, 4), None], "Some owners bring blocks"),
            ([(0, 3, 0, 2), (2, 5, 2, 4)], r"blocks of rows .* do not cover 0 to 5 once"),
            ([(1, 3, 0, 2), (3, 5, 2, 4)], "blocks of rows"),
            ([(0, 3, 0, 2), (3, 5, 2, 3)], r"blocks of columns .* do not cover 0 to 4 once"),
            ([(0, 3, 0, 2), (3, 5, 3, 4)], "blocks of columns"),
        ],
    )
    def test_with_gaps_or_twice(self, bounds, says):
        with pytest.raises(DataError, match=says):
            check_tiling(bounds, 4)

    @pytest.mark.parametrize("turned", [False, True])
    def test_places_on_a_grid_are_taken_once_each(self, turned):
        rows, columns = [(0, 1), (1, 2), (2, 3)], [(0, 2), (2, 3)]
        places = [(i, j) for i in range(3) for j in range(2)]
        bounds = [(*rows[i], *columns[j]) for i, j in places]
        if turned:
            places, bounds = [(j, i) for i, j in places], [(c, d, a, b) for a, b, c, d in bounds]
        check_tiling(bounds, 3, places)
        for left in (places[:1] + places[3:], places[:5], [*places[:5], places[0]]):
            some = [bounds[places.index(place)] for place in left]
            with pytest.raises(DataError, match="leave a place out, or take one twice"):
                check_tiling(some, 3, left)


class TestCellsOfASparseMatrix:
    def test_numbers_behind_the_last_cell_are_left_out(self):
        X = sparse.csr_array(np.eye(3))
        X.data, X.indices = np.append(X.data, [7.0, 7.0]), np.append(X.indices, [0, 0]).astype(X.indices.dtype)
        found = as_matrix(X)[0]
        assert found.data.tolist() == [1.0, 1.0, 1.0]
        assert len(found.indices) == 3
        assert len(X.data) == 5  # the caller's matrix stays as it was

    @pytest.mark.parametrize("make", [sparse.csr_array, sparse.csc_array])
    @pytest.mark.parametrize("wrong", [-1, 5])
    def test_a_place_that_is_not_there_is_refused(self, make, wrong):
        X = make(np.ones((4, 5)) if make is sparse.csr_array else np.ones((5, 4)))
        X.indices[-1] = wrong
        with pytest.raises(DataError, match=f"at place {wrong}, but the matrix has 5"):
            check_parts(X, None, None, grid=True)
