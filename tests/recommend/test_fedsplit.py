"""What FedSPLIT's paper claims, what leaves a client, and what happens to those who send nonsense."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor import DataError, Federation, ProtocolError
from fedfactor.core.algorithm import Round
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.pytree import leaves
from fedfactor.privacy import SecureSum
from fedfactor.recommend.fedsplit.algorithm import FedSPLIT
from fedfactor.recommend.fedsplit.joint_nmf import joint_factors
from fedfactor.recommend.fedsplit.messages import Basis, Factors, JointSums, Level, Means, Stats
from fedfactor.testing.plain_loop import drive

N_OWNERS = 12


def planted(seed=0, n=240, m=80, noise=0.5):
    """Ratings 1 to 5 with user, item and taste effects, 30 % seen; half of the rest is for testing."""
    rng = np.random.default_rng([3, seed])
    X = 3.3 + 0.4 * rng.normal(size=(n, 1)) + 0.6 * rng.normal(size=(1, m)) + noise * rng.normal(size=(n, m))
    X = np.clip(X + 0.9 * rng.choice([-1, 1], (n, 2)) @ rng.normal(size=(2, m)) / 1.5, 1, 5)
    seen = rng.random((n, m)) < 0.3
    train, test = np.where(seen, X, 0), np.where(~seen & (rng.random((n, m)) < 0.5), X, 0)
    owners = {f"{g:02d}": np.arange(g, n, N_OWNERS) for g in range(N_OWNERS)}
    return sparse.csr_array(train), sparse.csr_array(test), owners


def federation(R, owners):
    return Federation({name: R[rows] for name, rows in owners.items()}, missing_values="unstored")


def errors(run, test, owners):
    found = {}
    for name, rows in owners.items():
        kept, T = run.factors[name], test[rows].tocoo()
        fitted = np.einsum("pk,pk->p", kept.U[T.row], kept.V.T[T.col])
        found[name] = float(np.sqrt(np.mean((np.clip(fitted, 1, 5) - T.data) ** 2)))
    return found


@pytest.fixture(scope="module")
def data():
    return planted()


@pytest.fixture(scope="module")
def alone(data):
    R, test, owners = data
    algorithm = FedSPLIT.as_printed(4, local_components=4)
    return errors(fedfactor.run(algorithm, federation(R, owners), rounds=1, seed=0), test, owners)


@pytest.mark.parametrize(
    "algorithm",
    [FedSPLIT.as_printed(4, local_components=4), FedSPLIT(4), FedSPLIT(4, joint="sum"), FedSPLIT(4, item_bias="count")],
    ids=["as printed", "default", "sums", "count"],
)
def test_owners_gain(algorithm, data, alone):
    R, test, owners = data
    run = fedfactor.run(algorithm, federation(R, owners), seed=0)
    found = errors(run, test, owners)
    assert run.status == "converged"
    assert np.mean([found[name] < alone[name] for name in owners]) >= 0.95
    assert np.mean(list(found.values())) < 0.9 * np.mean(list(alone.values()))


@pytest.mark.slow
def test_two_exchanges_then_done(data):
    R, _, owners = data
    assert fedfactor.run(FedSPLIT(4), federation(R, owners), seed=0).rounds == 2
    assert fedfactor.run(FedSPLIT(4, item_bias="count"), federation(R, owners), seed=0).rounds == 3


def test_only_the_messages_of_the_protocol_leave_a_client(data):
    R, _, owners = data
    rows = {name: R[users].toarray() for name, users in owners.items()}
    rows = {name: np.where(X > 0, X, np.nan) for name, X in rows.items()}
    trace = drive(FedSPLIT(4), rows, rounds=2)
    assert [{type(up) for up in ups.values()} for ups in trace.ups] == [{Stats}, {Factors}]
    sent = {(type(up).__name__, path) for ups in trace.ups for up in ups.values() for path, _ in leaves(up)}
    assert sent == {
        ("Stats", "total"),
        ("Stats", "weight"),
        ("Stats", "residuals"),
        ("Stats", "counts"),
        ("Factors", "V"),
    }
    assert Stats.uplink == "sum"
    for name, up in trace.ups[1].items():
        unrated = ~(rows[name] > 0).any(axis=0)
        # No entry says for sure "nobody rated this", or "somebody did": none is zero, and above the floor, where rated
        # and drawn ones lie, none repeats another.
        assert (up.V > 0).all()
        assert all(len(np.unique(row)) >= (row > 1e-6).sum() for row in up.V)
        assert unrated.sum() == 0 or up.V[:, unrated].std() > 0
        assert up.V.shape[0] <= len(rows[name]) / 3


def test_as_printed_shows_who_rated_what_and_the_default_does_not():
    R, _, owners = planted(m=200)
    R = R.multiply(np.random.default_rng(0).random(R.shape) < 0.1).tocsr()
    rows = {name: R[users].toarray() for name, users in owners.items()}
    rows = {name: np.where(X > 0, X, np.nan) for name, X in rows.items()}
    printed = drive(FedSPLIT.as_printed(4), rows, rounds=2)
    for name, up in printed.ups[1].items():
        np.testing.assert_array_equal(up.item == 0, ~(rows[name] > 0).any(axis=0))
    assert "item" not in FedSPLIT(4).messages(printed.meta)[Factors]
    assert FedSPLIT(4, masked=True).messages(printed.meta)[Factors]["seen"].dtype == "bool"
    assert Factors not in FedSPLIT(4, masked=True, joint="sum").messages(printed.meta)


@pytest.mark.slow
def test_the_joint_step_on_sums_reaches_that_of_the_stack(data):
    R, _, owners = data
    rows = {name: np.where(X > 0, X, np.nan) for name, X in ((k, R[v].toarray()) for k, v in owners.items())}
    trace = drive(FedSPLIT(3, joint="sum", joint_rounds=60), rows, rounds=61)
    assert {type(up) for up in trace.ups[5].values()} == {JointSums}
    S = np.concatenate([state.sent for state in trace.clients[-1].values()])
    M = np.concatenate([state.M for state in trace.clients[-1].values()])
    down = trace.downs[-2]["00"]
    assert isinstance(down, Basis)
    error = np.linalg.norm(S - M @ down.V) / np.linalg.norm(S)
    assert error < 1.01 * joint_factors(S, 3)[2]


@dataclass(frozen=True)
class Garbage:
    """Stands in for one client that sends what no ratings can give."""

    spoil: object
    who: str = "05"

    def __call__(self, algorithm):
        spoil, who = self.spoil, self.who

        class Spoilt(type(algorithm)):
            __slots__ = ()

            def client_step(self, shard, state, down, at):
                state, up = FedSPLIT.client_step(self, shard, state, down, at)
                if at.client == who and isinstance(up, Means):
                    up = Means(np.float64(1e3))
                return state, replace(up, V=spoil(up.V)) if at.client == who and isinstance(up, Factors) else up

        return Spoilt(**{field.name: getattr(algorithm, field.name) for field in fields(algorithm)})


SPOILERS = {
    "huge": lambda V: 1e6 * V,
    "negative": lambda V: -V,
    "one huge entry": lambda V: np.where(np.arange(V.size).reshape(V.shape) == 7, 1e12, V),
}


@pytest.mark.slow
@pytest.mark.parametrize("spoil", SPOILERS.values(), ids=SPOILERS.keys())
@pytest.mark.parametrize(
    "algorithm", [FedSPLIT(4), FedSPLIT.as_printed(4, local_components=4)], ids=["default", "printed"]
)
def test_a_client_that_sends_garbage_is_left_out(algorithm, spoil, data):
    R, test, owners = data
    clean = errors(fedfactor.run(algorithm, federation(R, owners), seed=0), test, owners)
    run = fedfactor.run(Garbage(spoil)(algorithm), federation(R, owners), seed=0)
    assert run.history[-1].metrics["rejected"] == 1
    found = errors(run, test, owners)
    others = [name for name in owners if name != "05"]
    change = abs(np.mean([found[n] for n in others]) / np.mean([clean[n] for n in others]) - 1)
    assert change < 0.01
    assert found["05"] < 1.1 * clean["05"]  # it still receives, and fits its own users to what it got


@pytest.mark.slow
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    "algorithm",
    [FedSPLIT(4), FedSPLIT.as_printed(4, local_components=4), FedSPLIT(4, joint="sum"), FedSPLIT(4, masked=True)],
    ids=["default", "printed", "sums", "masked"],
)
def test_a_client_whose_numbers_are_not_finite_is_left_out_and_named(algorithm, value, data):
    R, test, owners = data

    class Sick(FedSPLIT):
        __slots__ = ()

        def client_step(self, shard, state, down, at):
            state, up = FedSPLIT.client_step(self, shard, state, down, at)
            first, leaf = next(iter(leaves(up)))
            return state, replace(up, **{first: np.full_like(leaf, value)}) if at.client == "05" else up

    clean = errors(fedfactor.run(algorithm, federation(R, owners), seed=0), test, owners)
    sick = Sick(**{field.name: getattr(algorithm, field.name) for field in fields(algorithm)})
    run = fedfactor.run(sick, federation(R, owners), seed=0)
    assert run.rejected == ("05",)
    assert all("05" not in record.participants for record in run.history)
    found = errors(run, test, owners)
    others = [name for name in owners if name != "05"]
    assert abs(np.mean([found[n] for n in others]) / np.mean([clean[n] for n in others]) - 1) < 0.02


LIES = {
    "residuals": {"residuals": lambda r: 1e4 * r},
    "counts": {"counts": lambda n: n + 1e3},
    "total": {"total": lambda t: 1e3 * t},
}


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_levels_that_no_ratings_can_give_are_left_out(lie, data):
    R, test, owners = data

    class Liar(FedSPLIT):
        __slots__ = ()

        def client_step(self, shard, state, down, at):
            state, up = FedSPLIT.client_step(self, shard, state, down, at)
            if at.client != "05" or not isinstance(up, Stats):
                return state, up
            return state, replace(up, **{name: np.asarray(change(getattr(up, name))) for name, change in lie.items()})

    clean = errors(fedfactor.run(FedSPLIT(4), federation(R, owners), seed=0), test, owners)
    run = fedfactor.run(Liar(4, scale=(1, 5)), federation(R, owners), seed=0)
    assert run.history[0].rejected == ("05",)
    found = errors(run, test, owners)
    assert abs(np.mean(list(found.values())) / np.mean(list(clean.values())) - 1) < 0.02


@pytest.mark.slow
def test_items_of_few_raters_are_drawn(data):
    R, _, owners = data
    rows = {name: np.where(X > 0, X, np.nan) for name, X in ((k, R[v].toarray()) for k, v in owners.items())}
    sent = {least: drive(FedSPLIT(4, min_raters=least), rows, rounds=2).ups[1]["03"].V for least in (1, 4)}
    few = (rows["03"] > 0).sum(axis=0) < 4
    assert few.any()
    assert not few.all()
    # Unit rows put all entries of a row at one new scale, the same for every entry that was kept.
    ratio = sent[4] / sent[1]
    np.testing.assert_allclose(ratio[:, ~few], ratio[:, ~few][:, :1] * np.ones((1, (~few).sum())))
    assert not np.isclose(ratio[:, few], ratio[:, ~few][:, :1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("form", [{"masked": True}, {"unrated": "keep"}], ids=str)
@pytest.mark.parametrize("item_bias", ["pooled", "mean"])
def test_items_of_few_raters_stay_home_in_every_form(data, form, item_bias):
    R, _, owners = data
    rows = {name: np.where(X > 0, X, np.nan) for name, X in ((k, R[v].toarray()) for k, v in owners.items())}
    form = {**form, "item_bias": item_bias, "unit_rows": False}
    shy, open_ = (drive(FedSPLIT(4, min_raters=n, **form), rows, rounds=2).ups[1]["03"] for n in (4, 1))
    raters = (rows["03"] > 0).sum(axis=0)
    few, many = (raters > 0) & (raters < 4), raters >= 4
    np.testing.assert_array_equal(shy.V[:, many], open_.V[:, many])
    moved = shy.V[:, few] != open_.V[:, few]
    assert moved[open_.V[:, few] > 1e-3].all()
    assert moved.any()
    if item_bias == "mean":
        assert (shy.item[few] != open_.item[few]).all()


@pytest.mark.slow
def test_an_owner_without_an_item_of_many_raters_sends_no_factors(data):
    R, test, owners = data
    owners = {**owners, "tiny": np.arange(3)}
    rows = {name: np.where(X > 0, X, np.nan) for name, X in ((k, R[v].toarray()) for k, v in owners.items())}
    for form in ({}, {"item_bias": "mean"}, {"masked": True}):
        sent = drive(FedSPLIT(4, **form), rows, rounds=2).ups[1]
        assert sent["tiny"].V.shape == (0, R.shape[1])
        assert sent["tiny"].item is None or not sent["tiny"].item.any()
        assert sent["tiny"].seen is None or not sent["tiny"].seen.any()
        assert len(sent["00"].V)
    assert not drive(FedSPLIT(4, joint="sum"), rows, rounds=3).ups[2]["tiny"].N.any()
    run = fedfactor.run(FedSPLIT(4), federation(R, owners), seed=0)
    assert errors(run, test, owners)["tiny"] < 1.2


def test_owners_of_too_few_users_keep_models_of_their_own(data):
    R, test, owners = data
    few = {name: rows[:3] for name, rows in owners.items()}
    run = fedfactor.run(FedSPLIT(4), federation(R, few), seed=0)
    assert run.status == "converged"
    assert not run.rejected
    assert np.mean(list(errors(run, test, few).values())) < 1.2


def test_sums_that_contradict_themselves_are_refused(data):
    R, _, owners = data
    algorithm = FedSPLIT(4)
    server, _ = algorithm.init_server(federation(R, owners).prepare(), Round(0, 0))
    m = R.shape[1]
    with pytest.raises(ProtocolError, match="nonsense"):
        algorithm.server_step(server, Stats(np.float64(9), np.float64(3), np.zeros(m), np.full(m, 1e6)), Round(0, 0))


def test_nothing_sound_to_join_leaves_everybody_with_its_own_model(data):
    R, _, owners = data
    spoilt = Garbage(lambda V: -V, who="")(FedSPLIT(4))
    rows = {name: np.where(X > 0, X, np.nan) for name, X in ((k, R[v].toarray()) for k, v in owners.items())}
    trace = drive(spoilt, rows, rounds=1)
    ups = {name: Factors(-np.ones((2, R.shape[1]))) for name in owners}
    server, down = spoilt.server_step(trace.server[-1], ups, Round(0, 1, participants=tuple(owners)))
    assert isinstance(down, Level)
    assert server.rejected.all()


def test_rejected_clients_have_names(data):
    R, _, owners = data
    rows = {name: np.where(X > 0, X, np.nan) for name, X in ((k, R[v].toarray()) for k, v in owners.items())}
    algorithm = Garbage(SPOILERS["huge"])(FedSPLIT(4))
    trace = drive(algorithm, rows, rounds=2)
    assert algorithm.rejected(trace.server[-1]) == ("05",)


@pytest.mark.slow
def test_counts_travel_in_a_secure_sum_and_factors_in_clear(data):
    R, _, owners = data
    plain = fedfactor.run(FedSPLIT(4), federation(R, owners), seed=0)
    with pytest.raises(IncompatibleError, match="Factors"):
        fedfactor.run(FedSPLIT(4), federation(R, owners), seed=0, privacy="secure-sum")
    run = fedfactor.run(FedSPLIT(4), federation(R, owners), seed=0, privacy=SecureSum(gathered="clear"))
    np.testing.assert_allclose(run.V, plain.V, rtol=1e-6, atol=1e-6)
    assert run.rounds == 2
    assert run.privacy["in_clear"] == ["Factors"]
    assert "Factors in clear" in run.privacy["sees"]["server"]


@pytest.mark.slow
def test_gathered_factors_beside_a_secure_sum_may_be_left_out(data):
    R, _, owners = data
    spoilt = Garbage(lambda V: V * np.nan)(FedSPLIT(4))
    run = fedfactor.run(spoilt, federation(R, owners), seed=0, privacy=SecureSum(gathered="clear"))
    assert run.rejected == ("05",)
    assert np.isfinite(run.V).all()


@pytest.mark.slow
def test_owners_choose_whether_to_give(data):
    R, test, owners = data
    sizes = sorted(R[rows].nnz for rows in owners.values())
    some = fedfactor.run(FedSPLIT(4, select="size", min_ratings=sizes[6]), federation(R, owners), seed=0)
    assert len(some.history[1].participants) == 6
    quality = fedfactor.run(FedSPLIT(4, select="quality", max_error=0.01), federation(R, owners), seed=0)
    assert len(quality.history[1].participants) == 0
    silent = fedfactor.run(FedSPLIT(4, select="size", min_ratings=sizes[6], joint="sum"), federation(R, owners), seed=0)
    assert len(silent.history[1].participants) == N_OWNERS  # under a sum nobody can tell who gave
    assert max(errors(some, test, owners).values()) < 1.2


def test_overrides_stay_with_their_owner(data):
    R, _, owners = data
    own = (("03", (("local_components", 1), ("alpha", 0.3))),)
    run = fedfactor.run(FedSPLIT(2, overrides=own), federation(R, owners), seed=0)
    plain = fedfactor.run(FedSPLIT(2), federation(R, owners), seed=0)
    assert run.bytes_up < plain.bytes_up
    with pytest.raises(DataError, match="nobody"):
        fedfactor.run(FedSPLIT(2, overrides=(("nobody", ()),)), federation(R, owners), seed=0)


@pytest.mark.parametrize(
    "bad",
    [
        {"rank_rule": "all"},
        {"joint": "x"},
        {"iterations": 0},
        {"outlier": 1.0},
        {"select": "best"},
        {"min_raters": 0},
        {"scale": (5, 1)},
        {"local_components": 1.5},
        {"gamma": -1.0},
        {"eta_user": float("nan")},
        {"overrides": (("03", (("masked", True),)),)},
    ],
)
def test_bad_settings_are_refused(bad, data):
    R, _, owners = data
    with pytest.raises(ValueError, match=next(iter(bad))):
        fedfactor.run(FedSPLIT(2, **bad), federation(R, owners), seed=0)


def test_a_late_owner_fits_its_users_to_the_joint_factors(data):
    R, test, owners = data
    run = fedfactor.run(
        FedSPLIT(4), federation(R, owners), seed=0, participation=lambda at, names: names[:-1] if at.index else names
    )
    assert errors(run, test, owners)["11"] < 1.1


def test_level_says_the_mean(data):
    R, _, _ = data
    shard = Shard(R, "stored")
    trace = drive(FedSPLIT(2), {"a": np.where(R.toarray() > 0, R.toarray(), np.nan)}, rounds=1)
    level = trace.downs[-1]["a"]
    assert isinstance(level, Level)
    assert float(level.mu) == pytest.approx(shard.X.data.mean())
