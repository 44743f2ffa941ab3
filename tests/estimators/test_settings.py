"""Parameters of estimators come from declared settings, under their names of today and of before."""

from __future__ import annotations

import inspect
import warnings
from typing import get_type_hints

import numpy as np
import pytest
from sklearn.base import clone

import fedfactor
from fedfactor import estimators
from fedfactor.core.docstrings import split_sections
from fedfactor.core.parameters import settings_of_class
from fedfactor.estimators.signatures import Face, face

EVERY = [each for name in estimators.__all__ if hasattr(each := getattr(estimators, name), "_declared")]


@pytest.mark.parametrize("made", EVERY)
def test_the_docstring_has_words_for_every_parameter_and_an_example(made):
    head, sections = split_sections(made.__doc__)
    assert list(sections)[:2] == ["Parameters", "Attributes"]
    assert f"import {made.__name__}" in sections["Examples"]
    assert head
    assert "{" not in head.replace("{\\", "").partition(".. math::")[0]
    for each in made._declared:
        assert each.words.endswith("."), each.name
        assert "{rounds}" not in each.words


@pytest.mark.parametrize("made", EVERY)
def test_the_signature_has_the_declared_types(made):
    hints = get_type_hints(made.__init__)
    assert [p.annotation for p in inspect.signature(made).parameters.values()] == [
        hints[name] for name in inspect.signature(made).parameters
    ]


def test_an_unknown_parameter_is_named():
    with pytest.raises(TypeError, match=r"FNMF: got an unexpected keyword argument 'gama'"):
        fedfactor.FNMF(2, gama=0.1)


def test_old_names_are_taken_with_a_warning(X):
    with pytest.warns(DeprecationWarning, match="'alpha' of FNMF is now called 'significance'") as told:
        model = fedfactor.FNMF(2, alpha=0.05)
    assert told[0].filename == __file__
    assert model.get_params()["significance"] == 0.05
    assert "alpha" not in model.get_params()
    with pytest.warns(DeprecationWarning, match="now called 'row_norm'"):
        model.set_params(scale="free")
    assert model.row_norm == "free"
    with pytest.warns(DeprecationWarning, match="now called 'significance'"):
        assert model.alpha == 0.05
    with pytest.warns(DeprecationWarning, match="now called 'significance'"):
        model.alpha = 0.01
    assert clone(model).significance == 0.01
    with pytest.raises(TypeError, match="both 'alpha' and 'significance'"):
        fedfactor.FNMF(2, alpha=0.1, significance=0.2)


def test_an_old_choice_is_taken_with_a_warning(X):
    old = fedfactor.OneShotNMF(2, local_solver="ipalm", random_state=0)
    assert old.get_params()["local_solver"] == "ipalm"  # as given, as scikit-learn wants it
    with pytest.warns(DeprecationWarning, match="local_solver='ipalm' of OneShotNMF is now called 'gradient'"):
        old.fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        new = fedfactor.OneShotNMF(2, local_solver="gradient", random_state=0).fit(X)
    np.testing.assert_array_equal(old.components_, new.components_)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (fedfactor.FNMF(2, gamma=-1.0), "gamma=-1.0 must be at least 0."),
        (fedfactor.FNMF(2, n_clients=0), "n_clients=0 must be a whole number of at least 1."),
        (fedfactor.FNMF(0), "n_components=0 must be a whole number of at least 1."),
        (fedfactor.FNMF(2, rounds=2.5), "rounds=2.5 must be a whole number of at least 1, or None."),
        (fedfactor.SynSD(2, split="cells"), "split='cells' is not known. Use one of rows, columns."),
        (fedfactor.ELBMF(2, beta=0.7), "beta=0.7 must lie in [0, 0.5)."),
    ],
)
def test_what_is_not_allowed_is_refused_by_fit(model, says, X):
    with pytest.raises(ValueError) as told:  # noqa: PT011 (the whole text is compared)
        model.fit(X)
    assert str(told.value) == says


def test_a_face_of_its_own_declares_nothing():
    @face(fedfactor.algorithms.FNMF)
    class Mine(estimators.nmf.OwnComponents):
        """Mine."""

    names = [each.name for each in settings_of_class(fedfactor.algorithms.FNMF)]
    assert list(inspect.signature(Mine).parameters)[: len(names)] == names
    assert Mine(3, gamma=0.5).get_params()["gamma"] == 0.5


def test_a_base_is_no_estimator():
    with pytest.raises(TypeError, match="no estimator by itself"):
        Face()
