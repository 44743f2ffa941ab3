from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy import sparse

from fedfactor.core.column_scales import column_sums, weighted
from fedfactor.core.errors import DataError
from fedfactor.core.pytree import tree_sum
from fedfactor.federation.column_ranges import read_units
from fedfactor.federation.features import agree, arrange, column_names, read_names, write_names
from fedfactor.federation.row_loading import prepare_rows
from fedfactor.federation.terms import DEFAULTS, Terms, features_hash
from fedfactor.io.preprocessing import Preprocess

rng = np.random.default_rng(0)
X = rng.poisson(2.0, (120, 4)).astype(float)


def terms(names, **changes):
    content = copy.deepcopy(DEFAULTS)
    content["features"] |= {"names": list(names), "sha256": features_hash(names)}
    content["algorithm"]["n_components"] = 2
    content["parties"] = {"north": {"key": "x"}}
    for section, entries in changes.items():
        content[section] |= entries
    return Terms.of(content)


def write(path, X, names):
    path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in X)]) + "\n")
    return path


def test_columns_are_brought_into_the_agreed_order(tmp_path):
    file = write(tmp_path / "north.csv", X[:, [2, 0, 3, 1]], ["c", "a", "d", "b"])
    shard = prepare_rows(file, terms(["a", "b", "c", "d"]), "north")
    np.testing.assert_array_equal(shard.X, X)
    assert shard.mask is None


def test_other_features_are_refused(tmp_path):
    file = write(tmp_path / "north.csv", X, ["a", "b", "c", "z"])
    with pytest.raises(DataError, match="does not fit the agreed features: 1 agreed columns are not in this file"):
        prepare_rows(file, terms(["a", "b", "c", "d"]), "north")
    with pytest.raises(DataError, match="are not among those agreed: 'z'"):
        prepare_rows(file, terms(["a", "b", "c"]), "north")


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_union_and_intersection(tmp_path, kind):
    rows = X if kind == "dense" else sparse.csr_array(X)
    got, mask = arrange(rows, ["a", "b", "c", "d"], ["a", "q", "d", "b", "c"], how="union")
    got = got if kind == "dense" else got.toarray()
    np.testing.assert_array_equal(got, np.c_[X[:, 0], np.zeros(len(X)), X[:, 3], X[:, 1], X[:, 2]])
    assert mask is None
    got, _ = arrange(rows, ["a", "b", "c", "d"], ["c", "a"], how="intersection")
    np.testing.assert_array_equal(got if kind == "dense" else got.toarray(), X[:, [2, 0]])


def test_absent_columns_can_be_missing(tmp_path):
    file = write(tmp_path / "north.csv", X, ["a", "b", "c", "d"])
    agreed = terms(["a", "b", "c", "d", "e"], features={"how": "union", "absent": "missing"})
    shard = prepare_rows(file, agreed, "north")
    assert shard.mask is not None
    assert shard.mask[:, :4].all()
    assert not shard.mask[:, 4].any()


def test_names_travel_without_rows(tmp_path):
    file = write(tmp_path / "north.csv", X, ["a", "b", "c", "d"])
    names = column_names(file)
    sent = write_names(tmp_path / "north.features.json", names)
    assert read_names(sent) == ("a", "b", "c", "d")
    assert agree({"x": read_names(sent), "y": ["d", "c", "b", "a"]}) == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    "steps", [["library-size 100"], ["log1p"], ["binarise 2"], ["library-size 10", "log1p", "binarise 0.5"]]
)
def test_sparse_and_dense_are_preprocessed_alike(steps):
    plan = Preprocess.of({"missing_values": "none", "steps": steps})
    np.testing.assert_allclose(plan.apply(sparse.csr_array(X)).toarray(), plan.apply(X), rtol=1e-12)


def test_library_size_is_the_row_sum():
    plan = Preprocess.of({"missing_values": "none", "steps": ["library-size 100"]})
    np.testing.assert_allclose(plan.apply(X[X.sum(1) > 0]).sum(1), 100)


@pytest.mark.parametrize("kind", ["tf-idf", "scale"])
def test_column_weights_are_those_of_the_pooled_rows(kind):
    parts = [column_sums(X[:10]), column_sums(sparse.csr_array(X[10:]))]
    both = tree_sum(parts)
    weights = both.weights(kind)
    np.testing.assert_allclose(weights, column_sums(X).weights(kind))
    np.testing.assert_allclose(weighted(sparse.csr_array(X), weights).toarray(), weighted(X, weights))
    if kind == "tf-idf":
        from sklearn.feature_extraction.text import TfidfTransformer

        np.testing.assert_allclose(weights, TfidfTransformer().fit(X).idf_)


def test_too_few_rows_may_not_take_part(tmp_path):
    file = write(tmp_path / "north.csv", X[:5], ["a", "b", "c", "d"])
    with pytest.raises(DataError, match="at least 100 are needed"):
        prepare_rows(file, terms(["a", "b", "c", "d"]), "north")
    low = terms(["a", "b", "c", "d"], privacy={"minimum_rows": 0}, algorithm={"n_components": 4})
    with pytest.raises(DataError, match="needed"):
        prepare_rows(write(tmp_path / "n.csv", X[:4], ["a", "b", "c", "d"]), low, "north")


def test_values_outside_the_domain_are_refused(tmp_path):
    file = write(tmp_path / "north.csv", X - 5, ["a", "b", "c", "d"])
    with pytest.raises(DataError, match="Negative"):
        prepare_rows(file, terms(["a", "b", "c", "d"]), "north")


@pytest.mark.parametrize(
    "text", ["column,low,high,unit\nhb,5,20.5,g/dl\n", "\ufeffcolumn;low;high;unit\r\nhb;5;20,5;g/dl\r\n"]
)
def test_ranges_are_read_as_spreadsheets_of_any_country_write_them(tmp_path, text):
    table = tmp_path / "units.csv"
    table.write_bytes(text.encode())
    assert read_units(table) == {"hb": {"low": 5.0, "high": 20.5, "unit": "g/dl"}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "must have the columns"), (b"column,low,high,unit\n", "a line for each"), (b"a,b\n1,2\n", "must have"),
        (b"column,low,high,unit\nhb,few,2,\n", "line 2: low and high"),
        (b"column,low,high,unit\nM\xfc,1,2,\n", "UTF-8"),
        (b"column,low,high,unit\nhb,1,2,\nhb,3,4,\n", "line 3: 'hb' has a range already"),
    ],
)  # fmt: skip
def test_ranges_that_cannot_be_read(tmp_path, text, said):
    (tmp_path / "units.csv").write_bytes(text)
    with pytest.raises(DataError, match=said):
        read_units(tmp_path / "units.csv")
