"""Bad input, one by one: each gets an error that says what is wrong, before the first round."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import NotFittedError

from fedfactor import DataError, FedAvgNMF, Federation, IncompatibleError, PooledNMF

FACES = [PooledNMF, FedAvgNMF]


def negative(X):
    X = X.copy()
    X[3, 2] = -1.5
    return X


def with_cell(X, value):
    X = X.copy()
    X[3, 2] = value
    return X


ROWS = [
    (negative, "Negative values in data passed: owner '0' has -1.5"),
    (lambda X: scipy.sparse.csr_array(negative(X)), "Negative values in data passed"),
    (lambda X: {"a": X, "b": negative(X)}, "Negative values in data passed: owner 'b'"),
    (lambda X: with_cell(X, np.nan), "contains NaN .* pass missing_values=numpy.nan"),
    (lambda X: with_cell(X, np.inf), "contains infinity"),
    (lambda X: [X, X[:, :4]], "Owner '1' has 4 columns but '0' has 6"),
    (lambda X: {"a": X, "b": X[:0]}, "Owner 'b' has no rows"),
    (lambda X: {}, "at least one owner"),
    (lambda X: {"1": X, 1: X}, "Two owners share the name '1'"),
    (lambda X: {"a": X, "b": X[0]}, "Owner 'b': Expected 2D array, got 1D"),
    (lambda X: [X, X[0]], "Owner '1': Expected 2D array, got 1D"),
    (lambda X: X[0], "Expected 2D array, got 1D array instead"),
    (lambda X: X[:, :1], "n_components=2 must be a whole number from 1 to 1: there are 1 features"),
    (lambda X: X[:1], "n_components=2 must be a whole number from 1 to 1.*1 rows in all"),
    (lambda X: np.ma.masked_array(X, mask=X > 1), "masked array, whose mask would be lost"),
    (lambda X: X * 1e200, "squares do not fit"),
    (lambda X: X * 1e-200, "smaller units"),
    (lambda X: X + 1j, "Complex data not supported"),
    (lambda X: [["a", "b", "c"], ["d", "e", "f"]], "could not convert string to float|not numbers"),
]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(("spoil", "message"), ROWS)
def test_rows(face, spoil, message, X):
    with pytest.raises(ValueError, match=message):
        face(rounds=1, tol=0, random_state=0).fit(spoil(X))


PARAMETERS = [
    ({"n_components": 7}, ValueError, "n_components=7 must be a whole number from 1 to 6"),
    ({"n_components": 2.0}, ValueError, "n_components=2.0 must be a whole number"),
    ({"n_components": "auto"}, ValueError, "n_components='auto' must be a whole number"),
    ({"rounds": 0}, ValueError, "rounds=0 must be a whole number of at least 1"),
    ({"rounds": 2.5}, ValueError, "rounds=2.5 must be a whole number"),
    ({"n_clients": 0}, ValueError, "n_clients=0 must be a whole number of at least 1"),
    ({"n_clients": 31}, DataError, "30 rows cannot be dealt to 31 clients"),
    ({"engine": "telepathy"}, ValueError, "engine='telepathy' is not known. Use 'local'"),
    ({"engine": 3}, TypeError, "engine=3 cannot run anything"),
    ({"privacy": "secure-sum"}, IncompatibleError, "Secure aggregation of 1 clients: the minimum is 3"),
    ({"privacy": "hope"}, ValueError, "privacy='hope' is not known. Use 'secure-sum'"),
    ({"missing_values": "nan"}, DataError, "missing_values='nan' is not known"),
    ({"missing_values": [0]}, DataError, r"missing_values=\[0\] is not known"),
    ({"missing_values": "unstored"}, DataError, "needs a sparse matrix"),
    ({"local_steps": 0}, ValueError, "local_steps=0"),
    ({"random_state": -1}, ValueError, "random_state=-1"),
    ({"random_state": "x"}, ValueError, "cannot be used to seed"),
]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(("parameters", "kind", "message"), PARAMETERS)
def test_parameters(face, parameters, kind, message, X):
    model = face(**parameters)  # nothing is looked at here
    with pytest.raises(kind, match=message):
        model.fit(X)
    assert not hasattr(model, "run_")


GROUPS = [
    (["a"] * 29, "29 labels were given for 30 rows"),
    (["a"] * 29 + [None], "Row 29 has no owner"),
    ([0.0] * 29 + [np.nan], "Row 29 has no owner"),
    ([1] * 15 + ["1"] * 15, "both read '1'"),
    ("a" * 30, "is a single value"),
    (3, "is a single value"),
    (np.zeros((30, 1)), "not a single value"),
]


@pytest.mark.parametrize(("groups", "message"), GROUPS)
def test_groups(groups, message, X):
    with pytest.raises(DataError, match=message):
        PooledNMF().fit(X, groups=groups)


@pytest.mark.parametrize("dress", [lambda X: {"a": X}, lambda X: [X], lambda X: Federation({"a": X})])
def test_groups_of_rows_that_have_owners(dress, X):
    with pytest.raises(DataError, match="this X comes with its owners"):
        PooledNMF().fit(dress(X), groups=["a"] * 30)


def test_names_of_features(X):
    pandas = pytest.importorskip("pandas")
    with pytest.raises(DataError, match="column name 'b' occurs more than once"):
        PooledNMF().fit(pandas.DataFrame(X, columns=list("abbdef")))
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    with pytest.raises(DataError, match="'a' is known only to 'one'"):
        PooledNMF().fit({"one": frame, "two": frame.rename(columns={"a": "g"})[list("gbcdef")]})
    with pytest.raises(DataError, match="Owner 'one' names its features but owner 'two' does not"):
        PooledNMF().fit({"one": frame, "two": X})


class TestTransform:
    @pytest.fixture
    def model(self, X):
        return PooledNMF(rounds=3, tol=0, random_state=0).fit({"a": X[:10], "b": X[10:]})

    def test_before_fit(self, X):
        for method in ("transform", "inverse_transform", "score"):
            with pytest.raises(NotFittedError):
                getattr(PooledNMF(), method)(X)

    @pytest.mark.parametrize(
        ("spoil", "message"),
        [
            (negative, "Negative values"),
            (lambda X: with_cell(X, np.nan), "contains NaN"),
            (lambda X: X[:, :4], "X has 4 features, but PooledNMF is expecting 6"),
            (lambda X: {"c": X[:, :4]}, "X has 4 features, but PooledNMF is expecting 6"),
            (lambda X: {"c": negative(X)}, "Negative values in data passed: owner 'c'"),
        ],
    )
    def test_rows(self, model, spoil, message, X):
        with pytest.raises(ValueError, match=message):
            model.transform(spoil(X))

    def test_client(self, model, X):
        np.testing.assert_array_equal(model.transform(X, client="a"), model.transform(X))
        with pytest.raises(ValueError, match="No owner is called 'c'; the run knew a, b"):
            model.transform(X, client="c")

    def test_factors_of_another_rank(self, model, X):
        with pytest.raises(DataError, match="U has 6 columns, but there are 2 components"):
            model.inverse_transform(X)
