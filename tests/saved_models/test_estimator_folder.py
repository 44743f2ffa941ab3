from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import fedfactor
from fedfactor import algorithms, estimators
from fedfactor.algorithm_names import RECOMMENDERS
from fedfactor.io.read import open_files
from fedfactor.recommend.estimator_base import FederatedRecommender
from fedfactor.recommend.list_estimator_base import CatalogueRecommender
from fedfactor.saved_models.run_folder import load_run


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    V = rng.random((3, 7))
    return {name: rng.random((n, 3)) @ V for name, n in (("east", 12), ("north", 9), ("west", 15))}


def fitted(kind, rows, **settings):
    return kind(2, rounds=4, random_state=1, **settings).fit(rows)


@pytest.mark.parametrize("name", ["PooledNMF", "FNMF", "FedAvgNMF", "FedProxNMF", "OneShotNMF", "DistributedNMF"])
def test_what_was_saved_comes_back(name, rows, tmp_path):
    model = fitted(getattr(fedfactor, name), rows)
    again = fedfactor.load(fedfactor.save(model, tmp_path / "out"))
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.components_, model.components_)
    np.testing.assert_array_equal(again.transform(rows["east"]), model.transform(rows["east"]))
    assert sorted(again.client_factors_) == ["east", "north", "west"]
    assert again.reconstruction_err_ == pytest.approx(model.reconstruction_err_)
    assert again.run_.worst_client == pytest.approx(model.run_.worst_client)
    assert again.run_.rounds == model.run_.rounds


def test_boolean_patterns_come_back(tmp_path):
    X = np.kron(np.eye(2), np.ones((6, 3)))
    model = fedfactor.PooledBMF(2, random_state=0).fit({"a": X[:7], "b": X[7:]})
    again = fedfactor.load(fedfactor.save(model, tmp_path))
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


@pytest.mark.slow
def test_components_of_single_owners_come_back(rows, tmp_path):
    model = fitted(fedfactor.PooledNMF, rows, n_private=1)
    again = fedfactor.load(fedfactor.save(model, tmp_path))
    np.testing.assert_array_equal(again.components_private_["north"], model.components_private_["north"])
    np.testing.assert_array_equal(
        again.transform(rows["north"], client="north"), model.transform(rows["north"], client="north")
    )


@pytest.mark.slow
def test_preprocessing_is_part_of_the_model(rows, tmp_path):
    for name, X in rows.items():
        frame = pd.DataFrame(X * [1, 10, 100, 1, 1, 1, 1000], columns=list("abcdefg"))
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    federation = open_files(sorted(tmp_path.glob("*.csv")), steps=("log1p", "scale max"))
    model = fedfactor.PooledNMF(3, random_state=0, tol=0, rounds=60).fit(federation)
    raw = pd.read_csv(tmp_path / "east.csv")
    U = model.transform(raw)
    np.testing.assert_allclose(U, model.client_factors_["east"], atol=0.05)
    again = fedfactor.load(fedfactor.save(model, tmp_path / "out"))
    np.testing.assert_array_equal(again.transform(raw), U)
    np.testing.assert_array_equal(again.transform(federation)["east"], U)  # prepared rows are not prepared twice


def test_recommenders_come_back_with_every_owner(tmp_path):
    rng = np.random.default_rng(0)
    pairs = [(u, i) for u in range(20) for i in rng.choice(15, 8, replace=False)]
    frame = pd.DataFrame([(u, i, 1 + (u + i) % 5) for u, i in pairs], columns=["user", "item", "rating"])
    model = fedfactor.PooledCF(2, random_state=0).fit(frame, groups={u: f"shop{u % 2}" for u in range(20)})
    again = fedfactor.load(fedfactor.save(model, tmp_path))
    np.testing.assert_array_equal(again.recommend([3, 4], n=3)[0], model.recommend([3, 4], n=3)[0])
    np.testing.assert_allclose(again.predict([3], [2]), model.predict([3], [2]))


def test_a_private_run_publishes_no_owner_s_error(rows, tmp_path):
    model = fitted(fedfactor.PooledNMF, rows, privacy="secure-sum")
    fedfactor.save(model, tmp_path)
    shared = json.loads((tmp_path / "shared" / "run.json").read_text())
    assert not {"owners", "errors", "worst_client"} & set(shared)
    assert fedfactor.load(tmp_path).run_.privacy["mode"] == "secure-sum"


def test_results_are_not_overwritten_unasked(rows, tmp_path):
    model = fitted(fedfactor.PooledNMF, rows)
    fedfactor.save(model, tmp_path)
    with pytest.raises(fedfactor.DataError, match="overwrite"):
        fedfactor.save(model, tmp_path)
    fedfactor.save(model, tmp_path, overwrite=True)


def test_a_folder_of_the_shared_part_alone(rows, tmp_path):
    model = fitted(fedfactor.PooledNMF, rows)
    fedfactor.save(model, tmp_path)
    for path in (tmp_path / "private").iterdir():
        path.unlink()
    again = fedfactor.load(tmp_path)
    assert again.client_factors_ == {}
    np.testing.assert_array_equal(again.transform(rows["east"]), model.transform(rows["east"]))


@pytest.mark.parametrize("change", [{"algorithm": "os"}, {"settings": {"n_components": "x"}}, {"history": [{"a": 1}]}])
def test_a_damaged_record_is_refused(rows, tmp_path, change):
    fedfactor.save(fitted(fedfactor.PooledNMF, rows), tmp_path)
    record = json.loads((tmp_path / "shared" / "run.json").read_text()) | change
    (tmp_path / "shared" / "run.json").write_text(json.dumps(record))
    with pytest.raises(fedfactor.DataError, match=r"run\.json"):
        load_run(tmp_path)


def test_what_cannot_be_saved():
    with pytest.raises(TypeError, match="estimator"):
        fedfactor.save(3, "nowhere")


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(fedfactor.DataError, match=r"nothere holds no result \(there is no such folder"):
        fedfactor.load(tmp_path / "nothere")
    with pytest.raises(fedfactor.DataError, match=r"no result \(components.safetensors was looked for\)"):
        fedfactor.load(tmp_path)


@pytest.mark.parametrize("saved", [False, True])
def test_factors_are_exported_from_a_model_or_its_folder(rows, tmp_path, saved):
    import pandas as pd

    model = fedfactor.PooledNMF(2, rounds=4, tol=0, random_state=1).fit(rows)
    result = fedfactor.save(model, tmp_path / "out") if saved else model
    V = pd.read_csv(fedfactor.export(result, tmp_path / "v.csv"), index_col="feature")
    np.testing.assert_allclose(V.to_numpy().T, model.components_)
    name = sorted(rows)[0]
    U = pd.read_parquet(fedfactor.export(result, tmp_path / "u.parquet", rows=True))
    assert len(U) == sum(map(len, model.client_factors_.values()))
    assert U["row"].iloc[0] == f"{name}/0"
    own = pd.read_csv(fedfactor.export(result, tmp_path / "own.csv", owner=name), index_col="row")
    np.testing.assert_allclose(own.to_numpy(), model.client_factors_[name])
    with pytest.raises(fedfactor.DataError, match="no U of 'nobody'"):
        fedfactor.export(result, tmp_path / "own.csv", owner="nobody")


def test_what_is_no_result_is_not_exported(tmp_path):
    with pytest.raises(TypeError, match="this is a list"):
        fedfactor.export([1], tmp_path / "v.csv")


def test_results_with_users_are_those_of_the_recommenders_of_one_list():
    """The command goes by this list, so that it need not load the estimators."""
    recommenders = {
        name
        for name in dir(algorithms)
        if issubclass(kind := getattr(estimators, name), FederatedRecommender)
        and not issubclass(kind, CatalogueRecommender)
    }
    assert recommenders == set(RECOMMENDERS)


def test_a_record_that_leaves_out_the_rank_has_that_of_its_components(tmp_path):
    out = fedfactor.save(fedfactor.PooledNMF(2, rounds=3, tol=0, random_state=0).fit(np.eye(6)), tmp_path / "model")
    record = json.loads((out / "shared" / "run.json").read_text())
    del record["settings"]["n_components"]
    (out / "shared" / "run.json").write_text(json.dumps(record))
    assert load_run(out).algorithm.n_components == 2


def test_new_rows_with_gaps_are_folded_in_as_by_the_model_that_was_saved(rows, tmp_path):
    gappy = {name: np.where(np.random.default_rng(5).random(X.shape) < 0.3, np.nan, X) for name, X in rows.items()}
    model = fitted(fedfactor.PooledNMF, gappy, missing_values=np.nan)
    again = fedfactor.load(fedfactor.save(model, tmp_path))
    assert model.run_.algorithm.misfit is not None  # the ridge of new rows follows from it
    np.testing.assert_array_equal(again.transform(gappy["east"]), model.transform(gappy["east"]))


def told(folder, change):
    file = folder / "shared" / "run.json"
    record = json.loads(file.read_text())
    file.write_text(json.dumps(change(record)))


@pytest.mark.parametrize(("by", "said"), [("0.9.1", "fedfactor 0.9.1"), ("none", "another version")])
def test_a_setting_that_nobody_knows_here_is_not_left_out_in_silence(rows, tmp_path, by, said):
    fedfactor.save(fitted(fedfactor.PooledNMF, rows), tmp_path)
    settings = {"n_components": 2, "twist": 3}
    told(tmp_path, lambda record: record | {"settings": settings, "environment": {"fedfactor": by}})
    with pytest.raises(fedfactor.DataError, match=rf"no setting 'twist'.*by {said}, or .*with the version that"):
        fedfactor.load(tmp_path)
