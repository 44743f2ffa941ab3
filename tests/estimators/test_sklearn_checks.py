"""scikit-learn's own checks, and the rule that a face has the parameters of its algorithm."""

from __future__ import annotations

import inspect
import tomllib
import warnings
from importlib import metadata
from pathlib import Path

import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedfactor
from fedfactor import estimators

# Recommenders take ratings, not matrices of features: they have a contract of their own.
EVERY = [face for name in estimators.__all__ if hasattr(face := getattr(estimators, name), "transform")]
FACES = [face for face in EVERY if hasattr(face, "_method")]  # the others solve one matrix and have no algorithm
EVERY_RUN = {
    "rounds": None,
    "n_clients": 1,
    "engine": "local",
    "privacy": None,
    "random_state": None,
    "device": None,
    "storage": None,
    "missing_values": None,
    "verbose": 0,
    "callbacks": (),
    "checkpoint": None,
}


def plain(face):
    """Make an estimator that takes any numbers, as the checks want it: Boolean ones look at their sign."""
    known = inspect.signature(face).parameters
    if "binarize" in known:
        return face(binarize=0.0)
    if {"split", "local_steps"} <= set(known):  # a few rounds of many small steps say as much as a thousand
        return face(rounds=10, local_steps=3)
    if face in (estimators.DistributedNMF, estimators.GridNMF):
        return face(rounds=20)
    return face(iterations=10) if "iterations" in known else face()


FIRST = [estimators.PooledNMF]  # checked with each commit; the others before each landing


@pytest.mark.slow
@parametrize_with_checks(
    [*(plain(face) for face in EVERY if face not in FIRST), estimators.PooledNMF(missing_values=float("nan"))]
)
def test_scikit_learn_checks_of_the_others(estimator, check):
    run_check(estimator, check)


@parametrize_with_checks([*map(plain, FIRST)])
def test_scikit_learn_checks(estimator, check):
    run_check(estimator, check)


def run_check(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # tiny random matrices; the warning has a test of its own
        check(estimator)


def test_version_is_that_of_the_project():
    try:
        metadata.version("fedfactor")
    except metadata.PackageNotFoundError:
        pytest.skip("fedfactor is on the path but not installed")
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    assert fedfactor.__version__ == project["version"]
