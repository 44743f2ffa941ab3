from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from fedfactor import PooledCF, PooledEASE
from fedfactor.recommend.user_table import UnknownWarning
from fedfactor.selection import evaluate


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    cells = [(u, i, int(rng.integers(1, 6))) for u in range(30) for i in rng.choice(20, 9, replace=False)]
    return pd.DataFrame(cells, columns=["user", "item", "rating"])


def test_models_are_judged_by_the_same_liked_items(frame):
    train, test = frame[frame.index % 3 > 0], frame[frame.index % 3 == 0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stars = evaluate(PooledCF(2, random_state=0).fit(train), test)
        lists = evaluate(PooledEASE(random_state=0).fit(train), test)
    assert stars.liked == pytest.approx(lists.liked)
    assert 3 < stars.liked <= 4
    assert stars.ranking.n_users == lists.ranking.n_users
    clicks = evaluate(PooledEASE(random_state=0).fit(train), test.assign(rating=1))
    assert clicks.liked is None


def test_unknown_users_are_counted_once(frame):
    model = PooledCF(2, random_state=0).fit(frame)
    with pytest.warns(UnknownWarning, match=r"1 user was not in fit: 15 pairs predicted"):
        model.predict(["stranger"] * 15, list(range(15)))
    with pytest.warns(UnknownWarning, match=r"1 user and 1 item were not in fit: 1 pair predicted"):
        model.predict(["stranger"], [99])
