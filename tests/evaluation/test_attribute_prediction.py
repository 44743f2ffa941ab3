from __future__ import annotations

import numpy as np
import pytest

from fedfactor.core.errors import DataError
from fedfactor.evaluation.attribute_prediction import area_under_curve, predict_attribute


def test_an_attribute_that_vectors_hold_is_found_and_another_is_not():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(200, 5))
    held = vectors[:, 0] + 0.3 * rng.normal(size=200) > 0
    assert area_under_curve(held, predict_attribute(vectors, held)) > 0.9
    other = rng.random(200) < 0.5
    assert abs(area_under_curve(other, predict_attribute(vectors, other)) - 0.5) < 0.15


def test_no_user_is_scored_by_a_model_that_saw_it():
    rng = np.random.default_rng(1)
    vectors, held = rng.normal(size=(30, 3)), rng.random(30) < 0.5
    flipped = held.copy()
    flipped[4] = ~flipped[4]
    before, after = (predict_attribute(vectors, each, seed=2) for each in (held, flipped))
    assert before[4] == after[4]
    assert (before != after).any()


@pytest.mark.parametrize(("vectors", "error"), [(np.ones((3, 2)), ValueError), (np.ones((4, 2)), DataError)])
def test_wrong_shapes_are_refused(vectors, error):
    with pytest.raises(error):
        predict_attribute(vectors, np.ones(3, bool))
