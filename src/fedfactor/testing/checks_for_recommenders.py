"""The contract of a recommender, one check at a time."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from fedfactor.core.errors import DataError


def small_ratings(seed: int = 0) -> dict[str, Any]:
    """Ratings of 24 users with text ids, two kinds of taste and three clients; one item is known to one client only.

    Examples
    --------
    >>> sorted(small_ratings())
    ['item', 'owner', 'rating', 'user']
    """
    rng = np.random.default_rng([5, seed])
    taste = rng.integers(0, 2, 24)
    kind = np.arange(12) % 2
    cells = [(i, j) for i in range(24) for j in range(12) if rng.random() < 0.7 and (j != 11 or i % 3 == 0)]
    users, items = (np.array(side) for side in zip(*cells, strict=True))
    rating = np.clip(
        np.rint(3 + 1.5 * np.where(taste[users] == kind[items], 1, -1) + rng.normal(0, 0.5, len(users))), 1, 5
    )
    names = np.array([f"user {i:02d}" for i in range(24)])
    owners = np.array(["east", "north", "west"])[users % 3]
    return {"user": names[users], "item": np.array([f"film {j:02d}" for j in items]), "rating": rating, "owner": owners}


def _frame(columns: dict[str, Any]) -> Any:
    import pandas as pd

    return pd.DataFrame(columns)


def _fit(model: Any, columns: dict[str, Any] | None = None, **options: Any) -> Any:
    frame = _frame(small_ratings() if columns is None else columns)
    return clone(model).set_params(random_state=3).fit(frame, **({"groups": "owner"} | options))


_last: list[Any] = []


def _fitted(model: Any) -> Any:
    """Fit once for all checks of one model that only ask; they come one after the other."""
    if not (_last and _last[0] is model):
        _last[:] = model, _fit(model)
    return _last[1]


def _same(one: Any, two: Any) -> bool:
    users, items = (small_ratings()[name] for name in ("user", "item"))
    return bool(np.array_equal(one.predict(users, items), two.predict(users, items)))


def check_fit_returns_self(model: Any) -> None:
    """``fit`` returns the model, and leaves its parameters as they were."""
    before = {name: repr(value) for name, value in model.get_params().items()}
    mine = clone(model)
    assert mine.fit(_frame(small_ratings()), groups="owner") is mine
    assert {name: repr(value) for name, value in mine.get_params().items()} == before


def check_same_seed_same_ratings(model: Any) -> None:
    """Two fits from one seed predict the same bits; a copy does, too."""
    one = _fitted(model)
    two = _fit(model)
    assert _same(one, two), "two fits from one seed differ"
    assert _same(one, copy.deepcopy(one)), "a copy predicts something else"


def check_order_of_rows(model: Any) -> None:
    """The order of the ratings does not matter."""
    columns = small_ratings()
    order = np.random.default_rng(0).permutation(len(columns["user"]))
    assert _same(_fitted(model), _fit(model, {name: values[order] for name, values in columns.items()}))


def check_groups(model: Any) -> None:
    """A column, a mapping from user to client and a mapping of clients to frames are equivalent."""
    columns = small_ratings()
    owner = dict(zip(columns["user"].tolist(), columns["owner"].tolist(), strict=True))
    plain = {name: columns[name] for name in ("user", "item", "rating")}
    one = _fitted(model)
    two = _fit(model, plain, groups=owner)
    parts = {
        name: _frame({key: values[columns["owner"] == name] for key, values in plain.items()})
        for name in ("east", "north", "west")
    }
    three = clone(model).set_params(random_state=3).fit(parts)
    assert _same(one, two), "a column and a mapping of users differ"
    assert _same(one, three), "a column and a mapping of owners differ"


def check_matrix(model: Any) -> None:
    """A sparse matrix with labels gives what the frame gives."""
    columns = small_ratings()
    users, rows = np.unique(columns["user"], return_inverse=True)
    items, positions = np.unique(columns["item"], return_inverse=True)
    R = sparse.csr_array((columns["rating"], (rows, positions)), shape=(len(users), len(items)))
    owner = dict(zip(rows.tolist(), columns["owner"].tolist(), strict=True))
    matrix = clone(model).set_params(random_state=3).fit(R, groups=[owner[row] for row in range(len(users))])
    one = _fitted(model).predict(columns["user"], columns["item"])
    np.testing.assert_array_equal(one, matrix.predict(rows, positions))


def check_ids_are_kept(model: Any) -> None:
    """Predictions and recommendations use the given ids, for items of one client only, too."""
    mine, columns = _fitted(model), small_ratings()
    items, scores = mine.recommend(n=3)
    assert set(items.ravel().tolist()) <= set(columns["item"].tolist())
    assert items.shape == scores.shape == (24, 3)
    lonely = mine.predict(["user 01"], ["film 11"])
    assert np.isfinite(lonely).all(), "an item that the user's owner never saw has no prediction"


def check_recommend(model: Any) -> None:
    """Lists are sorted, leave out what was seen (unless requested otherwise), and agree with ``predict``."""
    mine, columns = _fitted(model), small_ratings()
    users = np.unique(columns["user"])[:5]
    items, scores = mine.recommend(users, n=2)
    assert (np.diff(scores, axis=1) <= 0).all(), "scores are not sorted"
    seen = set(zip(columns["user"].tolist(), columns["item"].tolist(), strict=True))
    listed = zip(
        np.repeat(users, 2).tolist(), items.ravel().tolist(), np.isfinite(scores).ravel().tolist(), strict=True
    )
    assert not {(user, item) for user, item, fine in listed if fine} & seen, "something the user rated was recommended"
    every, values = mine.recommend(users, n=12, exclude_seen=False, shrink=0)
    assert all(len(set(row)) == 12 for row in every.tolist())
    clipped = np.clip(values, *mine.scale_) if mine.scale_ is not None else values
    flat = mine.predict(np.repeat(users, 12), every.ravel())
    np.testing.assert_allclose(clipped.ravel(), flat, rtol=1e-6, atol=1e-8)


def check_fold_in(model: Any) -> None:
    """A user without a group gets predictions near those of a member with the same ratings."""
    mine, columns = _fitted(model), small_ratings()
    who = columns["user"] == "user 00"
    ratings = dict(zip(columns["item"][who].tolist(), columns["rating"][who].tolist(), strict=True))
    new = mine.fold_in(ratings)
    items = np.unique(columns["item"])
    theirs = mine.predict(["user 00"] * len(items), items)
    apart = np.abs(new.predict([0] * len(items), items) - theirs).mean()
    assert apart < 0.75, f"a new user with the ratings of a member gets predictions {apart:.2f} away on average"
    best, _ = new.recommend(n=1)
    assert best[0, 0] not in ratings


def check_unknown_ids(model: Any) -> None:
    """Unknown users and items are predicted from averages, with a warning; every user receives a list."""
    mine = _fitted(model)
    for user, item in (("nobody", "film 00"), ("user 00", "no film"), ("nobody", "no film")):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = mine.predict([user, "user 01"], [item, "film 00"])
        assert np.isfinite(found).all(), f"the prediction of {user!r} and {item!r} is not finite"
        assert any("not in fit" in str(each.message) for each in told), "nothing was said about unknown ids"
        assert found[1] == mine.predict("user 01", "film 00")[0], "unknown ids change what is predicted for others"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        items, _ = mine.fold_in({"no film": 1.0, "film 00": 1.0}).recommend(n=2)
    assert "film 00" not in items[0].tolist()
    _refuses(lambda: mine.recommend("nobody"), "nobody")


def check_rules_for_lists(model: Any) -> None:
    """Lists keep to the items that are allowed, and similar items are others."""
    mine = _fitted(model)
    some = ["film 00", "film 03", "film 05"]
    for rule in ({"only": some}, {"without": [item for item in mine.items_.tolist() if item not in some]}):
        items, scores = mine.recommend("user 01", n=3, exclude_seen=False, **rule)
        assert set(items[np.isfinite(scores)].tolist()) <= set(some), f"{sorted(rule)} was not kept to"
    others, _ = mine.similar_items("film 00", n=3)
    assert "film 00" not in others[0].tolist()


def check_one_owner_alone(model: Any) -> None:
    """What one client takes home answers for its users, and holds nothing of the others."""
    mine = _fitted(model)
    north = mine.of_owner("north")
    users = mine.users_["north"][:2].tolist()
    items = ["film 00", "film 01"]
    assert np.array_equal(north.predict(users, items), mine.predict(users, items)), "predictions differ at home"
    assert list(north.tables_) == list(north.users_) == list(north.run_.factors) == ["north"]


def check_bad_ratings(model: Any) -> None:
    """Missing columns, ratings that are no numbers, and cells rated twice are refused."""
    columns = small_ratings()
    twice = {name: np.concatenate([values, values[:1]]) for name, values in columns.items()}
    empty = {**columns, "rating": np.where(np.arange(len(columns["user"])) == 3, np.nan, columns["rating"])}
    for bad, word in ((twice, "more than once"), (empty, "finite"), ({"user": [1], "rating": [2.0]}, "item")):
        _refuses(lambda bad=bad: _fit(model, bad, groups=None), word)


def _refuses(call: Callable[[], Any], words: str) -> None:
    try:
        call()
    except (DataError, ValueError) as error:
        said = str(error)
    else:
        raise AssertionError(f"nothing was refused; expected a message with {words!r}")
    assert any(word in said for word in words.split("|")), f"the refusal does not say {words!r}: {said}"


CHECKS: tuple[Callable[[Any], None], ...] = (
    check_fit_returns_self,
    check_same_seed_same_ratings,
    check_order_of_rows,
    check_groups,
    check_matrix,
    check_ids_are_kept,
    check_recommend,
    check_fold_in,
    check_unknown_ids,
    check_rules_for_lists,
    check_one_owner_alone,
    check_bad_ratings,
)


@dataclass(frozen=True, slots=True, eq=False)
class RecommenderCheck:
    """One check, ready to be called; its text is its name."""

    function: Callable[[Any], None]
    model: Any

    def __call__(self) -> None:
        """Run the check; an AssertionError states what the recommender does wrong."""
        self.function(self.model)

    def __str__(self) -> str:
        """Name the check."""
        return self.function.__name__


def recommender_checks(model: Any) -> Iterator[RecommenderCheck]:
    """List the checks that a recommender must pass, for ``pytest.mark.parametrize``.

    Parameters
    ----------
    model : estimator
        With ``fit(ratings, groups=)``, ``predict``, ``recommend`` and ``fold_in``; it is cloned, never fitted itself.

    Yields
    ------
    RecommenderCheck
        Call it to run it.

    Examples
    --------
    >>> from fedfactor import FedSPLIT
    >>> str(next(recommender_checks(FedSPLIT())))
    'check_fit_returns_self'
    """
    for function in CHECKS:
        yield RecommenderCheck(function, model)


def check_recommender(model: Any) -> None:
    """Run every check on a recommender; an AssertionError states which one fails and how.

    Examples
    --------
    >>> from fedfactor import PooledEASE
    >>> check_recommender(PooledEASE(ridge=2.0))
    """
    for check in recommender_checks(model):
        try:
            check()
        except AssertionError as error:
            raise AssertionError(f"{type(model).__name__} fails {check}: {error}") from error
