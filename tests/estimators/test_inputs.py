"""The same rows in every dress give the same factors, in the order of the rows."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse

from fedfactor import FedAvgNMF, Federation, PooledNMF, Shard
from fedfactor.core.pytree import to_numpy

FACES = [PooledNMF, FedAvgNMF]


# Fifteen rounds: once the loss is flat to the last bit, rounding decides when the extrapolation restarts.
def make(face=PooledNMF, **options):
    return face(**{"n_components": 3, "rounds": 15, "tol": 0, "random_state": 0} | options)


def by_owner(X, owner):
    return {name: X[owner == name] for name in np.unique(owner)}


@pytest.fixture
def fitted(X, owner):
    return make().fit(X, groups=owner)


def same(a, b, **tolerance):
    np.testing.assert_allclose(to_numpy(a), to_numpy(b), **{"rtol": 1e-6, "atol": 1e-9} | tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES)
def test_fit_transform_keeps_the_order_of_rows(face, X, owner):
    U = make(face).fit_transform(X, groups=owner)
    model = make(face).fit(X, groups=owner)
    for name in ("north", "south", "west"):
        np.testing.assert_array_equal(U[owner == name], model.client_factors_[name])
    same(U, model.transform(X), rtol=1e-3, atol=1e-4)
    assert np.linalg.norm(X - model.inverse_transform(U)) < 0.02 * np.linalg.norm(X)


@pytest.mark.slow
def test_rows_dealt_at_random_keep_their_order_too(X):
    model = make(n_clients=4)
    U = model.fit_transform(X)
    assert sorted(len(part) for part in model.client_factors_.values()) == [7, 7, 8, 8]
    same(U @ model.components_, X, atol=0.05 * X.max())
    again = make(n_clients=4).fit_transform(X)
    np.testing.assert_array_equal(U, again)


@pytest.mark.slow
def test_what_fit_transform_returns_belongs_to_the_caller(X, owner):
    for U in (make().fit_transform(X), make().fit_transform(X, groups=owner)):
        U *= 2.0
    model = make()
    U = model.fit_transform(X)
    before = model.client_factors_["0"].copy()
    U[:] = -1.0
    np.testing.assert_array_equal(model.client_factors_["0"], before)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mapping", "reversed", "federation", "shards", "openers"])
@pytest.mark.parametrize("face", FACES)
def test_rows_that_come_with_their_owners(face, kind, X, owner):
    parts = by_owner(X, owner)
    dressed = {
        "mapping": parts,
        "reversed": dict(reversed(parts.items())),
        "federation": Federation(parts),
        "shards": {name: Shard.of(rows) for name, rows in parts.items()},
        "openers": {name: lambda rows=rows: rows for name, rows in parts.items()},
    }[kind]
    model = make(face)
    U = model.fit_transform(dressed)
    reference = make(face).fit(X, groups=owner)
    np.testing.assert_array_equal(model.components_, reference.components_)
    assert list(U) == ["north", "south", "west"]
    for name, rows in U.items():
        np.testing.assert_array_equal(rows, reference.client_factors_[name])
    for name, rows in model.transform(dressed).items():
        same(rows, reference.transform(parts[name]))
    assert model.n_features_in_ == 6
    assert model.score(dressed) == pytest.approx(reference.score(X), rel=1e-6)


@pytest.mark.slow
def test_a_list_of_matrices_has_owners_and_a_list_of_rows_has_not(X):
    model = make().fit([X[:10], X[10:]])
    assert list(model.client_factors_) == ["0", "1"]
    reference = make().fit(X.tolist())
    assert list(reference.client_factors_) == ["0"]
    same(model.components_, reference.components_)


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["list", "series", "integers", "categorical"])
def test_labels_may_be_anything_with_one_value_for_each_row(labels, X, owner, fitted):
    pandas = pytest.importorskip("pandas")
    dressed = {
        "list": owner.tolist(),
        "series": pandas.Series(owner, index=np.arange(30)[::-1]),  # position counts, the index does not
        "integers": np.unique(owner, return_inverse=True)[1],
        "categorical": pandas.Categorical(owner),
    }[labels]
    same(make().fit(X, groups=dressed).components_, fitted.components_)


@pytest.mark.parametrize("form", ["csr_array", "csr_matrix", "csc_array", "coo_matrix", "lil_array", "dok_array"])
def test_sparse(form, X, owner):
    X = np.where(X > np.median(X), X, 0.0)
    S = getattr(scipy.sparse, form)(X)
    model, reference = make().fit(S, groups=owner), make().fit(X, groups=owner)
    same(model.components_, reference.components_, rtol=1e-5, atol=1e-7)
    same(model.transform(S), reference.transform(X), rtol=1e-4, atol=1e-6)


def test_sparse_rows_are_never_made_dense(owner, monkeypatch):
    S = scipy.sparse.random_array((60, 40), density=0.1, format="csr", rng=0)
    for form in (scipy.sparse.csr_array, scipy.sparse.csr_matrix):
        for name in ("toarray", "todense", "__array__"):
            monkeypatch.setattr(form, name, lambda *_: pytest.fail("made dense"), raising=False)
    model = make(n_clients=3, rounds=3)
    model.fit_transform(S)
    model.transform(S)
    model.score(S)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_single_precision_stays(face, form, X, owner):
    model = make(face)
    U = model.fit_transform(form(X.astype(np.float32)), groups=owner)
    assert U.dtype == model.components_.dtype == np.float32
    assert model.transform(form(X.astype(np.float32))).dtype == np.float32
    assert model.inverse_transform(U).dtype == np.float32


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES)
def test_torch_in_torch_out(face, X, owner):
    torch = pytest.importorskip("torch")
    T = torch.from_numpy(X)
    model, reference = make(face), make(face).fit(X, groups=owner)
    U = model.fit_transform(T, groups=owner)
    for found in (U, model.components_, model.transform(T), model.inverse_transform(U), model.client_factors_["west"]):
        assert isinstance(found, torch.Tensor)
        assert found.dtype == torch.float64
    same(model.components_, reference.components_, rtol=1e-4, atol=1e-6)
    same(U, model.transform(T), rtol=1e-3, atol=1e-4)
    assert isinstance(model.transform(X), np.ndarray)
    assert model.transform(T.float()).dtype == torch.float32
    assert model.n_features_in_ == 6
    with pytest.raises(ValueError, match="expecting 6 features"):
        model.transform(T[:, :4])


@pytest.mark.slow
def test_torch_tensors_at_their_owners_and_gradients_left_alone(X, owner):
    torch = pytest.importorskip("torch")
    T = torch.from_numpy(X).requires_grad_()
    model = make().fit(T, groups=torch.from_numpy(np.unique(owner, return_inverse=True)[1]))
    assert not model.components_.requires_grad
    U = make().fit_transform({name: torch.from_numpy(rows).float() for name, rows in by_owner(X, owner).items()})
    assert {rows.dtype for rows in U.values()} == {torch.float32}


@pytest.mark.slow
def test_sparse_tensors_belong_to_their_owners(X, owner):
    torch = pytest.importorskip("torch")
    X = np.where(X > np.median(X), X, 0.0)
    parts = by_owner(X, owner)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        tensors = {name: torch.from_numpy(rows).to_sparse_csr() for name, rows in parts.items()}
    model = make().fit(tensors)
    same(model.components_, make().fit(parts).components_, rtol=1e-4, atol=1e-6)
    assert model.score(tensors) == pytest.approx(-model.relative_error_, rel=1e-3)
    with pytest.raises(ValueError, match="Negative values"):
        make().fit({"a": -tensors["west"]})
    with pytest.raises(ValueError, match="sparse tensor of torch, which cannot be cut into rows"):
        make().fit(tensors["west"])


@pytest.mark.slow
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(library, X, owner, fitted):
    frames = pytest.importorskip(library)
    names = [f"gene {j}" for j in range(6)]
    frame = frames.DataFrame(dict(zip(names, X.T, strict=True)))
    model = make().fit(frame, groups=owner)
    same(model.components_, fitted.components_)
    assert model.feature_names_in_.tolist() == names
    assert model.run_.feature_names == tuple(names)
    same(model.transform(frame), fitted.transform(X))
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(frame[names[::-1]])


@pytest.mark.slow
def test_frames_at_their_owners_may_differ_in_the_order_of_columns(X, owner, fitted):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    parts = {name: frame[owner == name] for name in np.unique(owner)}
    parts["west"] = parts["west"][list("fedcba")]
    model = make().fit(parts)
    same(model.components_, fitted.components_)
    assert model.feature_names_in_.tolist() == list("abcdef")
    same(model.transform(parts)["west"], fitted.client_factors_["west"], rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform({"new": frame[list("fedcba")]})
    assert not hasattr(model.fit(X), "feature_names_in_")


def test_data_are_left_as_they_were(X, owner):
    before = X.copy()
    X.flags.writeable = False
    make().fit_transform(X, groups=owner)
    make(missing_values=before[0, 0]).fit(X)
    np.testing.assert_array_equal(X, before)


def test_the_device_is_looked_at_before_any_work(X):
    assert np.array_equal(make(device="cpu").fit(X).components_, make().fit(X).components_)
    with pytest.raises(ValueError, match=r"device='gpu' is not known. Use 'cpu' or 'cuda'"):
        make(device="gpu").fit(X)
    with pytest.raises(ValueError, match="storage='bfloat16' is for rows on a GPU, but device is 'cpu'"):
        make(device="cpu", storage="bfloat16").fit(X)
