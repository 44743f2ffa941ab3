"""Which cells are missing: one vocabulary for Python, the command line and federation terms."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor.cli.main import app
from fedfactor.core import missing_policies
from fedfactor.core.errors import DataError
from fedfactor.core.missing_policies import accepts_sparse, fill_missing, missing_policy, parse_missing, split_missing
from fedfactor.federation.terms import DEFAULTS, Terms
from tests.command_line import CliRunner


def test_words_and_numbers():
    assert math.isnan(parse_missing("NaN"))
    assert parse_missing("-1") == -1
    assert parse_missing(0) == 0.0
    assert parse_missing("unstored") == "unstored"
    assert parse_missing("none") is None
    assert parse_missing(None) is None
    with pytest.raises(DataError, match=r"--missing 'blank' is not known\. Use none, nan, a number or 'unstored'"):
        parse_missing("blank", "--missing")
    with pytest.raises(DataError, match="is not known"):
        parse_missing([1.0])


def test_sparse_rows_follow_some_rules_only():
    assert [accepts_sparse(rule) for rule in (None, "unstored", 0, 0.0, np.nan, -1)] == [True] * 4 + [False] * 2


class TestMissing:
    def test_nothing_is_missing_unless_said(self):
        X = np.array([[0.0, np.nan]])
        kept, mask = split_missing(X, None)
        assert kept is X
        assert mask is None

    @pytest.mark.parametrize(
        ("marker", "seen"), [(np.nan, [[True, False, True]]), (-9, [[True, True, False]]), (0.1, [[False, True, True]])]
    )
    def test_a_marker_is_compared_in_the_type_of_the_rows(self, marker, seen):
        X = np.array([[0.1, np.nan, -9]], np.float32)
        kept, mask = split_missing(X, marker)
        assert mask.tolist() == seen
        np.testing.assert_array_equal(kept, np.where(mask, X, 0))
        assert kept.dtype == np.float32

    def test_of_a_tensor(self):
        torch = pytest.importorskip("torch")
        kept, mask = split_missing(torch.tensor([[1.0, -9.0]]), -9)
        assert kept.tolist() == [[1.0, 0.0]]
        assert mask.tolist() == [[True, False]]

    def test_of_sparse_rows_are_those_not_stored(self):
        X = sparse.csr_array((np.array([0.0, 2.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 3))
        assert split_missing(X, "unstored") == (X, "stored")
        kept, mask = split_missing(X, 0)
        assert (kept.nnz, X.nnz, mask) == (1, 2, "stored")
        with pytest.raises(DataError, match="cannot be distinguished in a sparse matrix"):
            split_missing(X, 1)
        with pytest.raises(DataError, match="needs a sparse matrix"):
            split_missing(X.toarray(), "unstored")
        with pytest.raises(DataError, match="missing_values='zero' is not known"):
            split_missing(X, "zero")


class TestANewPolicy:
    """One function: Python, the command line and federation terms take its name."""

    @pytest.fixture
    def negative(self, monkeypatch):
        monkeypatch.setattr(missing_policies, "_POLICIES", dict(missing_policies._POLICIES))

        @missing_policy("negative", sparse=False)
        def split(X):
            return fill_missing(X, X >= 0), X >= 0

    @pytest.fixture
    def X(self):
        rng = np.random.default_rng(0)
        X = rng.random((40, 3)) @ rng.random((3, 5))
        X[rng.random(X.shape) < 0.1] = -9
        return X

    def test_in_python(self, negative, X):
        named = fedfactor.PooledNMF(2, rounds=3, random_state=0, missing_values="negative").fit(X)
        marked = fedfactor.PooledNMF(2, rounds=3, random_state=0, missing_values=-9).fit(X)
        np.testing.assert_array_equal(named.components_, marked.components_)
        np.testing.assert_array_equal(named.transform(X), marked.transform(X))
        assert not named.__sklearn_tags__().input_tags.sparse
        with pytest.raises(DataError, match="'unstored' or 'negative'"):
            fedfactor.PooledNMF(2, missing_values="positive").fit(X)

    def test_on_the_command_line(self, negative, X, tmp_path):
        np.savetxt(tmp_path / "a.csv", X, delimiter=",", header="a,b,c,d,e", comments="")
        common = ["fit", str(tmp_path / "a.csv"), "-k", "2", "--rounds", "3", "--seed", "1", "-q"]
        for rule, out in (("negative", "named"), ("-9", "marked")):
            done = CliRunner().invoke(app, [*common, f"--missing={rule}", "-o", str(tmp_path / out)])
            assert done.exit_code == 0, done.output
        named, marked = (fedfactor.load(tmp_path / out) for out in ("named", "marked"))
        np.testing.assert_array_equal(named.components_, marked.components_)
        assert named.missing_values == "negative"

    def test_in_federation_terms(self, negative):
        content = copy.deepcopy(DEFAULTS)
        content["preprocess"]["missing_values"] = "negative"
        terms = Terms.of(content)
        assert terms.preprocess().missing_values == "negative"
        assert terms.meta().masked
