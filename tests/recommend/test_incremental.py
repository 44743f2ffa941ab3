"""Users who come or leave change the weights in one exchange, as a fit to the users who are then in would."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from fedfactor import PooledEASE
from fedfactor.core.errors import DataError, IncompatibleError
from fedfactor.recommend.user_table import UnknownWarning

WHOLE = {"counts": "binary", "balance": 0.0}


def clients(n=3, users=40, items=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.integers(1, 6, (n * users, items)) * (rng.random((n * users, items)) < np.linspace(0.5, 0.02, items))
    return {f"shop {i}": sparse.csr_array(X[users * i : users * i + users].astype(float)) for i in range(n)}


@pytest.mark.parametrize("settings", [{}, {"min_pairs": 3}, {"min_users": 1}])
def test_sums_of_whole_numbers_leave_without_a_trace(settings):
    owners = clients()
    made = {**WHOLE, **settings}
    model = PooledEASE(**made).fit(owners)
    rest = {name: R for name, R in owners.items() if name != "shop 1"}
    fresh = PooledEASE(**made).fit(rest)
    model.remove(client="shop 1")
    np.testing.assert_array_equal(model.components_, fresh.components_)
    assert model.n_iter_ == 1
    assert sorted(model.users_) == sorted(rest)
    for one, two in zip(model.recommend(client="shop 2"), fresh.recommend(client="shop 2"), strict=True):
        np.testing.assert_array_equal(one, two)
    model.partial_fit({"shop 1": owners["shop 1"]})
    np.testing.assert_array_equal(model.components_, PooledEASE(**made).fit(owners).components_)
    assert sorted(model.users_) == sorted(owners)


def test_other_sums_leave_up_to_rounding():
    owners = clients()
    fresh = PooledEASE().fit({name: owners[name] for name in ("shop 0", "shop 2")})
    model = PooledEASE().fit(owners).remove(client="shop 1")
    np.testing.assert_allclose(model.components_, fresh.components_, rtol=0, atol=1e-12)


def test_an_item_that_became_rare_has_no_weights_and_gets_them_back():
    owners = clients()
    owners["shop 1"] = owners["shop 1"].tolil()
    for R in owners.values():
        if R.format == "csr":
            R[:, [3]] = 0
            R.eliminate_zeros()
    owners["shop 1"][:5, 3] = 4.0
    owners = {name: sparse.csr_array(R) for name, R in owners.items()}
    whole = PooledEASE().fit(owners)
    model = PooledEASE().fit(owners).remove(client="shop 1")
    assert whole.components_[3].any()
    assert not model.components_[3].any()
    fresh = PooledEASE().fit({name: owners[name] for name in ("shop 0", "shop 2")})
    np.testing.assert_allclose(model.components_, fresh.components_, rtol=0, atol=1e-12)
    model.partial_fit({"shop 1": owners["shop 1"]})
    np.testing.assert_allclose(model.components_, whole.components_, rtol=0, atol=1e-12)


def test_single_users_leave_and_new_ones_come_by_id():
    rng = np.random.default_rng(0)
    rows = [(f"u{u}", item, 1.0) for u in range(60) for item in "abcdefg" if rng.random() < 0.5]
    frame = pd.DataFrame(rows, columns=["user", "item", "rating"])
    owner = {user: "north" if int(user[1:]) < 30 else "south" for user in frame["user"]}
    gone = frame["user"].isin(["u3", "u40"])
    model = PooledEASE(**WHOLE).fit(frame, groups=owner).remove(["u3", "u40"])
    fresh = PooledEASE(**WHOLE).fit(frame[~gone], groups=owner)
    np.testing.assert_array_equal(model.components_, fresh.components_)
    assert "u3" not in model.users_["north"]
    assert model.predict("u4", "a") == fresh.predict("u4", "a")
    with pytest.raises(DataError, match="'u4' of client 'north' is in already"):
        model.partial_fit(frame[frame["user"] == "u4"], groups=owner)
    with pytest.raises(DataError, match="No user 'u3' was in fit"):
        model.remove("u3")
    new = pd.DataFrame({"user": ["u99", "u99"], "item": ["a", "z"], "rating": [1.0, 1.0]})
    with pytest.warns(UnknownWarning, match="1 items were not in fit"):
        model.partial_fit(new, groups={"u99": "south"})
    assert model.recommend("u99", n=1)[0].shape == (1, 1)
    np.testing.assert_array_equal(model.remove("u99").components_, fresh.components_)


def test_what_cannot_be_is_refused_and_changes_nothing():
    owners = clients()
    model = PooledEASE().fit(owners)
    before = model.components_.copy()
    with pytest.raises(ValueError, match="Give users, or client"):
        model.remove()
    with pytest.raises(ValueError, match="No owner is called 'shop 9'"):
        model.remove(client="shop 9")
    low = PooledEASE(low_rank=4).fit(owners)
    with pytest.raises(IncompatibleError, match="with low_rank=None"):
        low.remove(client="shop 1")
    assert not hasattr(low, "partial_fit")
    single = PooledEASE().fit({"only": owners["shop 0"]})
    with pytest.raises(DataError, match="No user would be left"):
        single.remove(client="only")
    np.testing.assert_array_equal(model.components_, before)


def test_secure_aggregation_needs_several_clients_or_their_consent():
    owners = clients(6, users=60, items=8)
    model = PooledEASE(privacy="secure-sum", random_state=0).fit(owners)
    with pytest.raises(IncompatibleError, match=r"differ by just these sums.*consent=True"):
        model.remove(client="shop 5")
    model.remove(client="shop 5", consent=True)
    fresh = PooledEASE().fit({name: R for name, R in owners.items() if name != "shop 5"})
    np.testing.assert_allclose(model.components_, fresh.components_, rtol=0, atol=1e-6)
