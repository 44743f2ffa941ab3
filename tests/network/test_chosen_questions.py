"""A coordinator that chooses its questions: what it could read of single rows, and that parties refuse them now.

The attacks drive the code of real parties through the coordinator's own relay of sums. With the fixture ``unchecked``
parties believe any question, as they did before they took the server's step themselves; there the attacks succeed.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

pytest.importorskip("cryptography")

from claims.lying_coordinator import attacked
from claims.lying_coordinator import unchecked as unchecked_answers
from fedfactor import algorithms
from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.flattened_upload import restore
from fedfactor.network.client import REFUSAL
from fedfactor.network.client_storage import ClientFolder
from fedfactor.network.exchange import NotEnough
from fedfactor.network.replica import Replica, adopt
from tests.network.in_process import Office

pytestmark = pytest.mark.slow


@pytest.fixture
def unchecked(monkeypatch):
    """Let parties believe any question, as before: no replica, and no bounds on what a method admits."""

    def believe(self, *words):
        return None, words[-1], ""

    for step in ("first", "following", "last"):
        monkeypatch.setattr(Replica, step, believe)
    for kind in (algorithms.PooledCF, algorithms.PooledBMF):
        monkeypatch.setattr(kind, "accepts", lambda self, down, meta: "")


class Liar:
    """A coordinator that asks what it likes, and reads what the parties' uploads add up to."""

    def __init__(self, folder, algorithm, rows, rounds):
        thirds = len(rows) // 3
        owners = {"north": rows[:thirds], "south": rows[thirds : 2 * thirds], "west": rows[2 * thirds :]}
        self.office = Office(folder, algorithm, owners, rounds=rounds, protect="secure-sum", report_score=False)
        self.server = self.office.server(dropouts="wait")
        self.kinds = {kind.__name__: kind for kind in self.server.expected}
        self.asked = 0

    def ask(self, down):
        """Ask one question of all parties in the next round; return the total."""
        if not self.asked:
            self.server.survey()
        head = self.server.head("step", self.asked)
        head = type(head)(**{**{n: getattr(head, n) for n in head.__slots__},
                             "participants": self.server.meta.clients})  # fmt: skip
        rare = self.server.surveyed.rare(self.server.agreement.least)
        total = restore(*self.server.relay.collect(head, down, self.server.expected, {}, rare))
        self.asked += 1
        return total

    def refused(self):
        return [ClientFolder(self.office.folder / n).sent()[-1].get("reason", "") for n in self.office.clerks]


def spec_of(algorithm, rows, name):
    meta = Meta(rows.shape[1], ("a", "b", "c"))
    return next(spec for kind, spec in algorithm.messages(meta).items() if kind.__name__ == name)


# ------------------------------------------------------------------------------------------------- PooledNMF: any row
BINARY = (np.random.default_rng(0).random((360, 10)) < 0.5) * 1.0
NMF = algorithms.PooledNMF(2, tol=0.0, start="random", local_steps=200)


def rows_within(columns, m):
    """Return an admissible V (not negative, rows of norm 1) with which only rows within these columns have u1."""
    inside = np.isin(np.arange(m), columns)
    first = inside / np.sqrt(inside.sum())
    second = np.where(inside, 3.0 / np.sqrt(inside.sum()) * (~inside).sum(), 1.0)
    return np.stack([first, second / np.linalg.norm(second)])


def read_rows(liar, questions):
    """Read rows: where one row alone answers, the sums are that row; the sums say by themselves that it is one."""
    found = []
    for columns in questions:
        total = liar.ask(liar.kinds["Factor"](rows_within(columns, 10)))
        square = float(total.G[0, 0])
        if square < 1e-6:
            continue
        row = total.A[0] / np.sqrt(square)
        if np.abs(row - np.rint(row)).max() < 1e-6 and row.max() < 1.5:
            found.append(np.rint(row))
    return found


QUESTIONS = [*combinations(range(10), 2), *combinations(range(10), 3)][:50]


def test_fifty_chosen_V_read_ten_rows_of_parties_that_believe_any(tmp_path, unchecked):
    liar = Liar(tmp_path, NMF, BINARY, 50)
    found = read_rows(liar, QUESTIONS)
    right = [row for row in found if (BINARY == row).all(axis=1).sum() == 1]  # the truth only scores
    assert len(found) == len(right)
    assert len({row.tobytes() for row in right}) >= 8


def test_no_row_is_read_now(tmp_path):
    liar = Liar(tmp_path, NMF, BINARY, 50)
    with pytest.raises(NotEnough, match=REFUSAL):
        read_rows(liar, QUESTIONS)
    assert liar.asked == 0
    assert all("does not follow from the totals" in reason for reason in liar.refused())


# ------------------------------------------------------------------------------------------ PooledCF: single users
def ratings(seed=1, users=450, items=14):
    rng = np.random.default_rng(seed)
    X = np.zeros((users, items))
    for row in X:
        chosen = rng.choice(items, rng.integers(2, 6), replace=False)
        row[chosen] = rng.integers(1, 6, len(chosen))
    return X


RATINGS = ratings()
CF = algorithms.PooledCF(2, tol=0.0, min_ratings=1, ridge=1e-6, ridge_floor=1e-6)


def few_cells(liar):
    """Let all cells but a few be kept aside: each that is left is summed alone."""
    single = []
    for key in range(3):
        total = liar.ask(liar.kinds["Begin"](np.float64(0.999), np.int64(key)))
        single += [(item, total.levels[item]) for item in np.flatnonzero(total.counts == 1)]
    return single


def test_cells_that_are_not_kept_aside_are_read_of_parties_that_believe_any_share(tmp_path, unchecked):
    single = few_cells(Liar(tmp_path, CF, RATINGS, 9))
    assert len(single) >= 3
    assert all(value in RATINGS[:, item] for item, value in single)


def huge_factors(liar, questions):
    """Silence with huge factors whoever rated anything outside of a set; read whom the sums say to be alone."""
    found = []
    m = RATINGS.shape[1]
    for columns in questions:
        V = np.full((2, m), 0.0)
        V[0] = 1e7
        V[0, list(columns)] = 1.0
        one = np.float64(1)
        down = liar.kinds["Items"](np.float64(0), one, np.zeros(m), np.arange(m), V, one, np.float64(0), np.int64(1))
        total = liar.ask(down)
        squares, sums = total.items[:, 0], total.items[:, 2]  # of u1, and of u1 beside the column of ones
        told = np.flatnonzero(squares > 1e-4)
        if told.size >= 2 and np.allclose(sums[told] ** 2, squares[told], rtol=1e-3):
            found.append(tuple(told.tolist()))
    return found


SETS = list(combinations(range(14), 3))[:40]


def test_users_are_isolated_by_huge_factors_where_parties_believe_any(tmp_path, unchecked):
    found = huge_factors(Liar(tmp_path, CF, RATINGS, 40), SETS)
    rated = [tuple(np.flatnonzero(row)) for row in RATINGS]
    assert len(found) >= 3
    assert sum(items in rated for items in found) >= 0.8 * len(found)


@pytest.mark.parametrize("attack", [few_cells, lambda liar: huge_factors(liar, SETS)])
def test_no_user_is_isolated_now(tmp_path, attack):
    liar = Liar(tmp_path, CF, RATINGS, 40)
    with pytest.raises(NotEnough, match=REFUSAL):
        attack(liar)
    assert liar.asked == 0


# ---------------------------------------------------------------------------------------- PooledBMF: samples of a row
PATTERNS = (np.random.default_rng(3).random((450, 12)) < 0.4) * 1.0
BMF = algorithms.PooledBMF(3)


def small_shares(liar):
    """Ask about so small a share of the rows that one alone answers."""
    sets = spec_of(BMF, PATTERNS, "AskTogether")["columns"].shape[0]
    columns = np.full((sets, 2), -1, np.int32)
    columns[: PATTERNS.shape[1]] = np.arange(PATTERNS.shape[1])[:, None]
    found = []
    for place in range(80):
        share = np.float64((0.05 + 0.05 * place) / 450)
        total = liar.ask(liar.kinds["AskTogether"](columns, share))
        count, together = total.count[: PATTERNS.shape[1]], total.together[: PATTERNS.shape[1]]
        if count.max(initial=0) == 1 and all((together[j] == count).all() for j in np.flatnonzero(count)):
            found.append(count.astype(float))
    return found


def test_a_share_of_one_row_is_read_of_parties_that_believe_any(tmp_path, unchecked):
    found = small_shares(Liar(tmp_path, BMF, PATTERNS, 80))
    assert found
    assert all((PATTERNS == row).all(axis=1).any() for row in found)


def test_no_share_of_one_row_is_answered_now(tmp_path):
    liar = Liar(tmp_path, BMF, PATTERNS, 80)
    with pytest.raises(NotEnough, match=REFUSAL):
        small_shares(liar)
    assert liar.asked == 0


# -------------------------------------------------------------------------------------------------- the tolerance alone
def test_what_the_tolerance_admits_reads_nothing(tmp_path):
    """Within the tolerance a coordinator may choose, once a round: the total is that of the honest question."""
    honest, bent = (Liar(tmp_path / name, NMF, BINARY, 6) for name in ("honest", "bent"))
    rng, changed = np.random.default_rng(0), []
    for liar in (honest, bent):
        replica = Replica(liar.server.algorithm, liar.server.meta, 5, liar.server.expected)
        server, down = replica.algorithm.init_server(replica.meta, Round(5, 0))
        for index in range(5):
            relative, absolute = liar.server.expected[type(down)]["V"].rounding
            if liar is bent:
                room = relative * np.abs(down.V) + absolute * np.abs(down.V).max()
                asked = type(down)(np.maximum(down.V + 0.99 * rng.choice([-1, 1], down.V.shape) * room, 0))
                server = adopt(server, down, asked)
                down = asked
            total = liar.ask(down)
            changed.append(total)
            server, down = replica.step(server, total, index)
    for one, other in zip(changed[:5], changed[5:], strict=True):
        scale = np.abs(one.A).max()
        assert np.abs(one.A - other.A).max() < 1e-7 * scale  # a row is 1/360 of it and more


@pytest.mark.parametrize("name", ["penalties", "search", "PooledCF"])
def test_a_lying_coordinator_gets_no_answer(name):
    """Three methods of the claim that plays all attacks against all methods."""
    found = attacked([name])[name]
    assert all(about["refused"] for about in found.values()), found
    assert sum(about.get("tried", True) for about in found.values()) >= len(found) - 1


def test_parties_without_the_check_answer_a_lying_coordinator(tmp_path):
    assert unchecked_answers(tmp_path) == 3
