"""Going on from a fit: ``warm_start`` begins at its components, ``partial_fit`` does without the earlier rows."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fedfactor
from fedfactor import PooledNMF, Shard
from fedfactor.core.errors import DataError, IncompatibleError

pytestmark = pytest.mark.slow


def planted(seed: int = 0, rows: int = 120, k: int = 4, m: int = 15) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.gamma(0.7, 1, (rows, k)) @ rng.gamma(0.5, 1, (k, m)) + 0.05 * rng.random((rows, m))


def test_the_error_of_all_rows_is_what_partial_fit_lowers():
    X = planted()
    model = PooledNMF(4, random_state=0, tol=0, rounds=10).fit({"a": X[:50], "b": X[50:80]})
    earlier, U = X[:80], np.vstack([model.client_factors_["a"], model.client_factors_["b"]])
    before = model._held
    model.partial_fit({"c": X[80:]})
    # U of the earlier rows is what it was, in units of rows of V that have length 1 again.
    units = np.sqrt(np.diag(model.run_.algorithm.begin.held.G) / np.diag(before.G))
    V, own = model.components_, model.client_factors_["c"]
    squares = np.sum((earlier - U * units @ V) ** 2) + np.sum((X[80:] - own @ V) ** 2)
    told = [record.metrics["relative_error"] for record in model.run_.history]
    assert told[-1] ** 2 * np.sum(X**2) == pytest.approx(squares, rel=1e-3)
    assert told[-1] <= told[0]
    assert np.allclose(np.linalg.norm(V, axis=1), 1)


def test_who_owns_further_rows_does_not_matter():
    X = planted()
    first = PooledNMF(4, random_state=0).fit(X[:60])
    one = PooledNMF(4, random_state=0).fit(X[:60]).partial_fit({"c": X[60:]})
    two = first.partial_fit(X[60:], groups=["c"] * 20 + ["d"] * 40)
    assert np.allclose(one.components_, two.components_)
    assert sorted(two.client_factors_) == ["c", "d"]


def test_nothing_is_forgotten():
    """Rows of another kind come: sums hold what earlier rows need, where rows alone would push it out."""
    earlier, further = planted(1, k=2), planted(2, rows=60, k=2)
    model = PooledNMF(4, random_state=0, rounds=40, tol=0).fit(earlier).partial_fit(further)
    forgetful = PooledNMF(4, random_state=0, rounds=40, tol=0, warm_start=True).fit(earlier).fit(further)
    assert -model.score(earlier) < 0.25 * -forgetful.score(earlier)


def test_row_by_row_comes_near_all_at_once():
    X = planted(3)
    model = PooledNMF(4, random_state=0)
    for start in range(0, 120, 30):
        model.partial_fit({f"owner {start}": X[start : start + 30]})
    assert -model.score(X) < 1.2 * PooledNMF(4, random_state=0).fit(X).relative_error_


def test_tensors_and_single_precision_go_on_as_they_are(tmp_path):
    torch = pytest.importorskip("torch")
    X = planted().astype(np.float32)
    plain = PooledNMF(4, random_state=0, rounds=6, tol=0).fit(X[:60]).partial_fit(X[60:])
    assert plain.components_.dtype == np.float32
    T = torch.as_tensor(X)
    model = PooledNMF(4, random_state=0, rounds=6, tol=0, checkpoint=tmp_path).fit(T[:60])
    model.set_params(checkpoint=tmp_path / "further").partial_fit(T[60:])
    assert isinstance(model.components_, torch.Tensor)
    # The wide start is folded in single precision for arrays, in double for tensors.
    assert np.allclose(model.components_.numpy(), plain.components_, atol=2e-3)


def test_the_first_partial_fit_is_a_fit():
    X = planted()
    assert np.array_equal(
        PooledNMF(3, random_state=0).partial_fit(X).components_, PooledNMF(3, random_state=0).fit(X).components_
    )


@pytest.mark.filterwarnings("ignore:3 of 3 clients have fewer")
def test_a_secure_sum_serves():
    X = planted()
    owners = {"a": X[:20], "b": X[20:40], "c": X[40:60]}
    further = {"d": X[60:80], "e": X[80:100], "f": X[100:]}
    plain = PooledNMF(4, random_state=0, rounds=5, tol=0).fit(owners).partial_fit(further)
    summed = PooledNMF(4, random_state=0, rounds=5, tol=0, privacy="secure-sum").fit(owners).partial_fit(further)
    assert np.allclose(plain.components_, summed.components_, atol=1e-3)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"loss": "kullback-leibler"}, "loss='kullback-leibler'"),
        ({"n_private": 1}, "n_private=1"),
        ({"alpha_U": 0.1}, "alpha_U=0.1"),
        ({"weights": "equal"}, "weights='equal'"),
    ],
)
def test_sums_that_would_not_tell_are_refused(settings, named):
    X = planted()
    model = PooledNMF(2, random_state=0, rounds=3, tol=0, **settings).fit({"a": X[:60], "b": X[60:]})
    with pytest.raises(AttributeError, match="no attribute 'partial_fit'") as refused:
        model.partial_fit({"c": X[:10]})
    assert re.search(f"{named} no sums say.*warm_start=True", str(refused.value.__cause__))
    assert not hasattr(model, "partial_fit")
    model.set_params(warm_start=True).fit({"a": X[:60], "b": X[60:], "c": X[:10]})


def test_missing_cells_before_or_after_are_refused():
    X = planted()
    gaps = X.copy()
    gaps[3, 4] = np.nan
    model = PooledNMF(2, random_state=0, rounds=3, tol=0).fit(X)
    further, earlier = ({"a": Shard.of(gaps, np.nan)}, {"a": Shard.of(X)})
    with pytest.raises(IncompatibleError, match=r"missing cells.*warm_start=True"):
        model.partial_fit(further)
    with pytest.raises(IncompatibleError, match="No sums of the earlier rows"):
        PooledNMF(2, random_state=0, rounds=3, tol=0).fit(further).partial_fit(earlier)
    assert not hasattr(PooledNMF(2, missing_values=np.nan), "partial_fit")


def test_a_folder_keeps_no_sums(tmp_path):
    X = planted()
    model = fedfactor.load(fedfactor.save(PooledNMF(2, random_state=0).fit(X), tmp_path / "out"))
    with pytest.raises(IncompatibleError, match="in no folder"):
        model.partial_fit(X)
    assert model.set_params(warm_start=True).fit(X).n_iter_ < 10


def test_a_private_run_starts_anew():
    X = planted()
    model = PooledNMF(2, random_state=0).fit(X).set_params(privacy=fedfactor.dp(1.0), warm_start=True)
    with pytest.raises(IncompatibleError, match="warm_start=True starts at components that rows have shaped"):
        model.fit(X)


def test_further_rows_are_preprocessed_as_the_earlier_ones(tmp_path):
    """Files are opened with steps; rows given later are as they are in the files."""
    from fedfactor.data import open_files

    X = planted()
    for name, rows in (("a", X[:40]), ("b", X[40:80])):
        np.save(tmp_path / f"{name}.npy", rows)
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    model = PooledNMF(4, random_state=0).fit(open_files(paths, steps=["scale max"]))
    Y = X * model.preprocess_.weights
    plain = PooledNMF(4, random_state=0).fit({"a": Y[:40], "b": Y[40:80]}).partial_fit({"c": Y[80:]})
    assert np.allclose(model.partial_fit({"c": X[80:]}).components_, plain.components_)
    with pytest.raises(DataError, match="among themselves"):
        model.partial_fit(open_files(paths, steps=["scale max"]))


def test_other_features_are_refused():
    X = planted()
    model = PooledNMF(2, random_state=0).fit(X)
    with pytest.raises(ValueError, match="14 features, but PooledNMF is expecting 15"):
        model.partial_fit(X[:, :14])
    with pytest.raises(ValueError, match="14 features, but PooledNMF is expecting 15"):
        model.partial_fit({"c": X[:, :14]})


def test_a_warm_start_begins_where_the_last_fit_ended():
    X = planted()
    model = PooledNMF(4, random_state=0, tol=0, rounds=12).fit(X)
    error = model.relative_error_
    cold = PooledNMF(4, random_state=0, tol=0, rounds=1).fit(X)
    model.set_params(warm_start=True, rounds=1).fit(X)
    assert model.relative_error_ <= error < cold.relative_error_
    assert model.run_.algorithm.begin is None  # a result that others read says settings, not matrices


def test_a_warm_start_of_another_rank_is_refused():
    X = planted()
    model = PooledNMF(4, random_state=0, warm_start=True).fit(X).set_params(n_components=3)
    with pytest.raises(DataError, match=r"start at 4 components of 15 features.*n_components=3"):
        model.fit(X)


def test_a_warm_start_takes_new_owners():
    X = planted()
    model = PooledNMF(4, random_state=0, warm_start=True).fit({"a": X[:80]})
    rounds = model.fit({"a": X[:80], "b": X[80:]}).n_iter_
    assert rounds < PooledNMF(4, random_state=0).fit({"a": X[:80], "b": X[80:]}).n_iter_


def test_a_checkpoint_of_another_start_is_refused(tmp_path):
    X = planted()
    model = PooledNMF(4, random_state=0, warm_start=True, tol=0, rounds=3, checkpoint=tmp_path).fit(X[:60])
    with pytest.raises(fedfactor.core.errors.CheckpointError, match="belongs to another run"):
        model.fit(X[:60])
