"""Parameters of estimators: written-out signatures and docstrings agree with the algorithms; other names are taken."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, replace
from typing import get_type_hints

import numpy as np
import pytest
from sklearn.base import clone

import fedfactor
from fedfactor import estimators
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.parameters import settings_of_class
from fedfactor.engines.run import run
from fedfactor.estimators.estimator import Estimator, FederatedEstimator

EVERY = [getattr(estimators, name) for name in estimators.__all__]
FEDERATED = [each for each in EVERY if issubclass(each, FederatedEstimator)]


def parameters(made):
    return dict(inspect.signature(made).parameters)


def own_settings(made):
    return {each.name: each for each in settings_of_class(made._method) if each.name not in made._expressed_otherwise}


def sections(made):
    """Return the sections of a numpydoc docstring by title."""
    lines = inspect.getdoc(made).split("\n")
    titles = [at for at, line in enumerate(lines[:-1]) if line and set(lines[at + 1]) == {"-"}]
    return {lines[a]: lines[a + 2 : b] for a, b in zip(titles, [*titles[1:], len(lines)], strict=True)}


def documented(made):
    """Return name → (heading, description) of the section "Parameters"; one entry may be of several names."""
    found: dict[str, tuple[str, str]] = {}
    names: list[str] = []
    for line in sections(made)["Parameters"]:
        if line and not line.startswith(" "):
            head, _, kind = line.partition(" : ")
            names = head.split(", ")
            found |= {name: (kind, "") for name in names}
        else:
            found |= {name: (found[name][0], f"{found[name][1]} {line.strip()}".strip()) for name in names}
    return found


@pytest.mark.parametrize("made", FEDERATED)
def test_the_signature_has_the_parameters_of_the_algorithm_first(made):
    own = own_settings(made)
    given = parameters(made)
    shared = {name for made in FEDERATED for name in parameters(made) if name not in own_settings(made)}
    alone = [name for name in own if name not in shared]
    assert set(own) <= set(given)
    assert [name for name in given if name not in shared][: len(alone)] == alone
    hints = get_type_hints(made.__init__)
    for name, declared in own.items():
        if declared.default is MISSING:
            assert name == "n_components"
            assert isinstance(given[name].default, int)
        elif name in made._bounds:  # its values are others than those of the algorithm
            continue
        else:
            assert given[name].default == declared.default
            assert type(given[name].default) is type(declared.default)
        assert (
            replace(declared, kind=hints[name], default=None).type_words == replace(declared, default=None).type_words
        )


def test_parameters_of_the_run_are_the_same_for_all_estimators():
    found = {}
    for made in FEDERATED:
        hints, own = get_type_hints(made.__init__), own_settings(made)
        for name, each in parameters(made).items():
            if name not in own:
                found.setdefault(name, set()).add((repr(each.default), str(hints[name])))
    assert {name for name, kinds in found.items() if len(kinds) > 1} == set()
    of_run = inspect.signature(run).parameters
    for name in ("rounds", "privacy", "checkpoint", "callbacks", "device", "storage"):
        assert found[name] == {(repr(of_run[name].default), next(iter(found[name]))[1])}
    every = {"rounds", "n_clients", "engine", "privacy", "random_state", "verbose", "callbacks", "checkpoint"}
    for made in FEDERATED:
        assert every <= set(parameters(made)), made


@pytest.mark.parametrize("made", EVERY)
def test_init_keeps_what_it_is_given_and_does_nothing_else(made):
    given = {name: object() for name in parameters(made)}
    model = made(**given)
    assert vars(model) == given
    assert model.get_params(deep=False) == given
    kinds = [each.kind for each in parameters(made).values()]
    assert kinds == [inspect.Parameter.POSITIONAL_OR_KEYWORD, *[inspect.Parameter.KEYWORD_ONLY] * (len(kinds) - 1)]


@pytest.mark.parametrize("made", EVERY)
def test_every_parameter_is_documented(made):
    entries = documented(made)
    assert set(entries) == set(parameters(made))
    for name, (kind, text) in entries.items():
        assert text.endswith("."), name
        default = parameters(made)[name].default
        shown = re.search(r"default=(.+)$", kind)
        if shown:
            assert shown[1].replace('"', "'") == repr(default), name
        elif kind:
            assert default is None, name
    found = sections(made)
    assert list(found) == ["Parameters", "Attributes", "Notes", "Examples"]
    assert f"import {made.__name__}" in "\n".join(found["Examples"])


@pytest.mark.parametrize("made", FEDERATED)
def test_the_documented_number_of_rounds_is_that_of_the_algorithm(made):
    said = re.search(r"; default (\d+)", documented(made)["rounds"][1])
    default = made._method.default_rounds
    if said is None:
        assert not isinstance(default, int) or default >= 10_000  # methods that end by themselves
    else:
        assert int(said[1]) == default


@pytest.mark.parametrize("made", EVERY)
def test_estimators_are_offered_at_the_top_and_are_no_algorithms(made):
    assert getattr(fedfactor, made.__name__) is made
    assert getattr(fedfactor.algorithms, made.__name__, None) is not made


def test_an_unknown_parameter_is_named():
    with pytest.raises(TypeError, match="unexpected keyword argument 'gama'"):
        fedfactor.FNMF(2, gama=0.1)


def test_max_iter_is_an_alias_of_rounds():
    model = fedfactor.PooledNMF(2, max_iter=7)
    assert model.rounds == model.max_iter == 7
    assert "max_iter" not in model.get_params()
    assert model.set_params(max_iter=9).rounds == 9
    assert clone(model).rounds == 9
    with pytest.raises(TypeError, match="both 'max_iter' and 'rounds', two names of one parameter"):
        fedfactor.PooledNMF(2, max_iter=7, rounds=7)


@pytest.mark.parametrize(
    ("made", "name", "ours"),
    [
        (fedfactor.PooledNMF, "beta_loss", "loss"),
        (fedfactor.PooledNMF, "alpha_W", "alpha_U"),
        (fedfactor.PooledNMF, "alpha_H", "alpha_V"),
        (fedfactor.PooledNMF, "init", "start"),
        (fedfactor.FedAvgNMF, "solver", "local_solver"),
        (fedfactor.DSANLS, "max_iter", "iterations"),
        (fedfactor.FedDMF, "max_iter", "epochs"),
    ],
)
def test_names_of_scikit_learn_are_answered_with_ours(made, name, ours):
    for call in (made, made().set_params):
        with pytest.raises(TypeError, match=f"has no parameter '{name}'. The parameter is called '{ours}' here"):
            call(**{name: 1})
    assert ours in parameters(made)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (fedfactor.FNMF(2, gamma=-1.0), "gamma=-1.0 must be at least 0."),
        (fedfactor.FNMF(2, n_clients=0), "n_clients=0 must be a whole number of at least 1."),
        (fedfactor.FNMF(0), "n_components=0 must be a whole number of at least 1."),
        (fedfactor.FNMF(2, rounds=2.5), "rounds=2.5 must be a whole number of at least 1, or None."),
        (fedfactor.SynSD(2, split="cells"), "split='cells' is not known. Use one of rows, columns."),
        (fedfactor.PooledNMF(2, n_init=0), "n_init=0 must be a whole number of at least 1, or None."),
        (fedfactor.PooledNMF(2, warm_start="yes"), "warm_start='yes' must be True or False."),
        (
            fedfactor.PooledNMF(2, storage="int8"),
            "storage='int8' is not known. Use one of float64, float32, bfloat16, or None.",
        ),
        (fedfactor.PooledNMF(2, verbose=-1), "verbose=-1 must be a whole number of at least 0, or True or False."),
        (fedfactor.PooledBMF(2, binarize="a"), "binarize='a' must be a number, or None."),
        (fedfactor.ELBMF(2, beta=0.7), "beta=0.7 must lie in [0, 0.5)."),
        (fedfactor.ELBMF(2, time_limit=-1), "time_limit=-1 must be a number of at least 0, or None."),
        (fedfactor.GreConD(0), "n_components=0 must be a whole number of at least 1."),
        (fedfactor.PRIMP(2, cost="bits"), "cost='bits' is not known. Use one of error, mdl."),
    ],
)
def test_what_is_not_allowed_is_refused_by_fit(model, says, X):
    with pytest.raises(ValueError) as told:  # noqa: PT011 (the whole text is compared)
        model.fit(X)
    assert str(told.value) == says


def test_the_bounds_of_a_recommender_are_checked():
    ratings = {"a": np.eye(3), "b": np.eye(3)}
    with pytest.raises(ValueError, match="scale=3 must be a tuple of 2 numbers, or None: the lowest and the highest"):
        fedfactor.PooledCF(2, scale=3).fit(ratings)
    with pytest.raises(ValueError, match=r"scale=\(5, 1\) must be the lowest and the highest rating"):
        fedfactor.PooledCF(2, scale=(5, 1)).fit(ratings)


def test_a_subclass_needs_no_init_of_its_own():
    class Mine(fedfactor.FNMF):
        """Mine."""

    assert Mine(3, gamma=0.5).get_params() == fedfactor.FNMF(3, gamma=0.5).get_params()
    assert isinstance(Mine(3), Estimator)


def test_the_algorithm_of_an_estimator_has_its_parameters():
    algorithm = fedfactor.PooledNMF(3, local_steps=2).to_algorithm()
    assert algorithm == fedfactor.algorithms.PooledNMF(3, local_steps=2)
    with pytest.raises(ValueError, match="local_steps=0 must be"):
        fedfactor.PooledNMF(3, local_steps=0).to_algorithm()


class TestRun:
    """``fedfactor.run`` takes estimators."""

    def test_the_run_is_that_of_fit(self, X):
        clients = {"a": X[:8], "b": X[8:]}
        model = fedfactor.PooledNMF(2, rounds=4, tol=0, random_state=3)
        found = fedfactor.run(model, clients)
        assert not hasattr(model, "components_")
        np.testing.assert_array_equal(found.V, model.fit(clients).components_)
        assert (found.rounds, found.seed) == (4, 3)

    def test_it_is_that_of_the_algorithm(self, X):
        clients = {"a": X[:8], "b": X[8:]}
        ours = fedfactor.run(fedfactor.FedAvgNMF(2, tol=0), clients, rounds=3, seed=1)
        theirs = fedfactor.run(fedfactor.algorithms.FedAvgNMF(2, tol=0), clients, rounds=3, seed=1)
        np.testing.assert_array_equal(ours.V, theirs.V)

    def test_what_is_given_to_run_comes_before_the_parameters_of_the_estimator(self, X):
        model = fedfactor.PooledNMF(2, rounds=4, tol=0, random_state=3, privacy="secure-sum")
        found = fedfactor.run(model, {"a": X[:10], "b": X[10:20], "c": X[20:]}, rounds=2, seed=5)
        assert (found.rounds, found.seed) == (2, 5)
        assert "secure" in str(found.privacy).lower()
        assert (model.rounds, model.random_state) == (4, 3)

    def test_missing_values_thresholds_and_starts_are_those_of_the_estimator(self, X):
        gaps = np.where(np.arange(X.size).reshape(X.shape) % 7 == 0, np.nan, X)
        model = fedfactor.PooledNMF(2, missing_values=np.nan, n_init=2, rounds=3, tol=0, random_state=0)
        clients = {"a": gaps[:8], "b": gaps[8:]}
        np.testing.assert_array_equal(fedfactor.run(model, clients).V, model.fit(clients).components_)
        model = fedfactor.FELB(2, binarize=0.5, rounds=3, random_state=0)
        clients = {"a": X[:8], "b": X[8:]}
        np.testing.assert_array_equal(fedfactor.run(model, clients).V, model.fit(clients).components_)

    def test_recommenders_take_their_ratings(self):
        rng = np.random.default_rng(0)
        from scipy import sparse

        clients = {name: sparse.csr_array(rng.integers(0, 6, (12, 5)) * (rng.random((12, 5)) < 0.6)) for name in "ab"}
        clients = {name: each.astype(float) for name, each in clients.items()}
        model = fedfactor.PooledCF(2, rounds=4, random_state=0)
        np.testing.assert_array_equal(fedfactor.run(model, clients).V, model.fit(clients).components_)
        with pytest.raises(IncompatibleError, match="PooledCF has no parameter 'device'"):
            fedfactor.run(model, clients, device="cuda")

    @pytest.mark.parametrize("odd", [fedfactor.PooledNMF, fedfactor.ASSO(2), "pooled-nmf", None])
    def test_what_has_no_algorithm_is_refused(self, odd, X):
        with pytest.raises(IncompatibleError, match=r"estimator|Pass an instance"):
            fedfactor.run(odd, {"a": X})
