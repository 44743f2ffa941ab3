"""Estimators take rows in the units of the files, and return them in these units."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedfactor
from fedfactor.io.read import open_files


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    V = rng.gamma(1.0, size=(2, 4)) * [1.0, 10.0, 300.0, 0.1]
    found = []
    for name in ("north", "south"):
        found.append(tmp_path / f"{name}.csv")
        pd.DataFrame(rng.gamma(1.0, size=(20, 2)) @ V, columns=list("abcd")).to_csv(found[-1], index=False)
    return found


@pytest.mark.parametrize("steps", [["scale rms"], ["scale max"], ["log1p", "scale rms"], ["log1p"]])
@pytest.mark.parametrize("stored", [False, True])
def test_inverse_transform_returns_the_units_of_the_files(files, tmp_path, steps, stored):
    model = fedfactor.PooledNMF(4, random_state=0, tol=0, rounds=300).fit(open_files(files, steps=steps))
    model = fedfactor.load(fedfactor.save(model, tmp_path / "saved")) if stored else model
    X = pd.read_csv(files[0])
    again = model.inverse_transform(model.transform(X))
    assert np.linalg.norm(again - X) < 0.03 * np.linalg.norm(X)
    assert np.all(np.abs(again.mean(axis=0) / X.mean().to_numpy() - 1) < 0.05)


def test_columns_that_were_left_out_are_unknown(files):
    model = fedfactor.PooledNMF(2, random_state=0).fit(open_files(files, steps=["select 3"]))
    again = model.inverse_transform(model.transform(pd.read_csv(files[0])))
    assert np.isnan(again).all(axis=0).sum() == 1


def test_groups_may_name_a_column():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((30, 4)), columns=list("abcd"))
    labels = ["east", "west", "west"] * 10
    settings = {"random_state": 0, "rounds": 5, "tol": 0}
    named = fedfactor.PooledNMF(2, **settings).fit(frame.assign(site=labels), groups="site")
    given = fedfactor.PooledNMF(2, **settings).fit(frame, groups=labels)
    assert list(named.feature_names_in_) == list("abcd")
    assert sorted(named.client_factors_) == ["east", "west"]
    assert np.array_equal(named.components_, given.components_)
    U = fedfactor.PooledNMF(2, **settings).fit_transform(frame.assign(site=labels), groups="site")
    assert np.array_equal(U, fedfactor.PooledNMF(2, **settings).fit_transform(frame, groups=labels))
    with pytest.raises(fedfactor.DataError, match="no column 'hospital'"):
        fedfactor.PooledNMF(2).fit(frame, groups="hospital")


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_a_column_without_a_value_gets_no_weight(loss):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((30, 4)) + 0.1, columns=["crp", "ldl", "empty", "tsh"])
    frame.loc[::4, "crp"] = np.nan
    settings = {"random_state": 0, "missing_values": np.nan, "loss": loss}
    frame["empty"] = np.nan
    with pytest.warns(UserWarning, match="'empty' has no value at any owner"):
        model = fedfactor.PooledNMF(2, **settings).fit({"a": frame[:12], "b": frame[12:]})
    assert np.all(model.components_[:, 2] == 0)
    assert np.all(model.components_[:, [0, 1, 3]].sum(axis=0) > 0)
    assert model.transform(frame).shape == (30, 2)
