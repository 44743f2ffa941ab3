"""What a recommender says of ids that it does not know, and of an engine that is none."""

from __future__ import annotations

import pandas as pd
import pytest

from fedfactor import DataError, PooledCF

RATINGS = pd.DataFrame({"user": [1000, 1000, 1001, 1001], "item": list("abab"), "rating": [1.0, 2.0, 3.0, 4.0]})


def test_an_unknown_user_is_told_what_ids_look_like():
    model = PooledCF(1, random_state=0).fit(RATINGS)
    with pytest.raises(DataError, match="No user 42 was in fit, where they are called 1000, 1001"):
        model.recommend([42], n=1)


def test_a_rating_given_twice_is_named_by_plain_ids():
    with pytest.raises(DataError, match="User 1000 rated item 'a' more than once"):
        PooledCF(1).fit(pd.concat([RATINGS, RATINGS[:1]]))


def test_an_engine_that_is_none_is_refused_as_by_other_estimators():
    with pytest.raises(TypeError, match="engine=3 cannot run anything"):
        PooledCF(1, engine=3).fit(RATINGS)
