"""Noise that somebody knows, starts that noise spoils, and budgets that contradict each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor.algorithms import FedSPLIT, PooledNMF
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.pytree import leaves
from fedfactor.privacy import Ledger, Listener, Minimums
from fedfactor.privacy.noise import Gaussian
from fedfactor.privacy.planner import make_plan

pytest.importorskip("dp_accounting")
pytest.importorskip("cryptography")


def owners(n_clients=6):
    rng = np.random.default_rng(0)
    X = rng.random((n_clients * 40, 3)) @ rng.random((3, 12))
    return {f"c{i}": part for i, part in enumerate(np.split(X, n_clients))}


def plan(*parts):
    return make_plan(parts, PooledNMF(3), Federation(owners()), 3, simulation=True)


def honest(made):
    return next(link.honest for link in made.channel.links if isinstance(link, Gaussian))


def test_a_coordinator_who_is_a_client_knows_its_own_noise():
    budget = fedfactor.dp(1.0, row_bound=3.0, rows=240)
    apart = plan(budget)
    assert honest(plan(budget, Minimums(coordinator_is_client=True))) == honest(apart) - 1
    assert "its own share" in " ".join(apart.channel.report(3)["not_covered"])
    covered = plan(fedfactor.dp(1.0, row_bound=3.0, rows=240, colluding=1))
    assert honest(covered) == honest(apart) - 1
    assert "its own share" not in " ".join(covered.channel.report(3)["not_covered"])
    with pytest.raises(IncompatibleError, match="no client is left"):
        plan(fedfactor.dp(1.0, row_bound=3.0, rows=240, colluding=4), Minimums(coordinator_is_client=True))


def test_pooled_nmf_for_whole_clients_starts_without_the_sums_that_noise_spoils():
    privacy = fedfactor.dp(1.0, unit="client", clip=1.0)
    run = fedfactor.run(PooledNMF(3), owners(), rounds=3, seed=0, privacy=privacy)
    assert np.isfinite(run.V).all()
    assert run.algorithm.start == "random"
    assert run.privacy["epsilon"] <= 1
    with pytest.raises(IncompatibleError, match="noise spoils"):
        fedfactor.run(PooledNMF(3, start="wide"), owners(), rounds=3, seed=0, privacy=privacy)


@pytest.mark.parametrize("twice", [(Ledger(epsilon=0.1), Ledger(epsilon=9.0)), (Minimums(), Minimums(strict=True))])
def test_of_two_budgets_neither_is_dropped_in_silence(twice):
    with pytest.raises(IncompatibleError, match="only one could count"):
        plan(fedfactor.dp(1.0), *twice)
    with pytest.raises(IncompatibleError, match="two DP"):
        plan(fedfactor.dp(1.0), fedfactor.dp(100.0))


@pytest.mark.parametrize(
    "settings", [{"epsilon": 0.0}, {"epsilon": float("nan")}, {"delta": 2.0}, {"unit": "rows"}, {"accountant": "gdp"}]
)
def test_books_that_could_hold_nothing_are_refused_when_they_are_opened(settings):
    with pytest.raises(ValueError, match=r"epsilon > 0|must be row"):
        Ledger(**settings)


class TestOneClientMovesNobodyElse:
    """A client's number of rows scaled the uploads of all others: a claimed ε = 1 was 2.39 by experiment."""

    @staticmethod
    def sums(rows, algorithm, n_clients=12):
        rng = np.random.default_rng(0)
        # Small enough that no clip cuts them, unless somebody's rows scale them up.
        owners = {f"c{i:02d}": 0.007 * rng.exponential(size=(40, 3)) @ rng.random((3, 10)) for i in range(n_clients)}
        owners["x"] = np.zeros((rows, 10))  # uploads nothing, however many rows it has
        heard = Listener()
        privacy = (heard, fedfactor.dp(1.0, unit="client", clip=0.5, noise_seed=1))
        fedfactor.run(algorithm, owners, rounds=1, seed=0, privacy=privacy)
        return np.concatenate([np.ravel(leaf) for _, leaf in leaves(heard.rounds[0][1])])

    @pytest.mark.slow
    @pytest.mark.parametrize("weights", ["rows", "equal"])
    def test_sums_of_neighbours_differ_by_the_clip_at_most(self, weights):
        algorithm = PooledNMF(3, weights=weights)
        few, many = self.sums(1, algorithm), self.sums(100_000, algorithm)
        assert np.linalg.norm(few - many) <= 0.5

    @pytest.mark.slow
    def test_penalties_that_need_the_number_of_rows_are_refused(self):
        with pytest.raises(IncompatibleError, match="alpha_V=0"):
            self.sums(5, PooledNMF(3, alpha_U=0.1))
        self.sums(5, PooledNMF(3, alpha_U=0.1, alpha_V=0.0))


def test_methods_that_take_noise_for_fraud_say_so_before_they_start():
    """FedSPLIT ended in the middle with "Somebody sent nonsense"."""
    rng = np.random.default_rng(0)
    owners = {f"c{i}": sparse.csr_array(rng.integers(0, 6, (20, 8)).astype(float)) for i in range(5)}
    federation = fedfactor.Federation(owners, missing_values="unstored")
    with pytest.raises(IncompatibleError, match="does not bear noise"):
        fedfactor.run(
            FedSPLIT(3, joint="sum"), federation, rounds=2, privacy=fedfactor.dp(1.0, unit="client", clip=1.0)
        )


@pytest.mark.slow
def test_a_private_run_holds_no_exact_figure_under_a_public_name(tmp_path):
    run = fedfactor.run(PooledNMF(3), owners(), rounds=2, privacy=fedfactor.dp(1.0, row_bound=2.0, rows=240))
    assert run.scores == {}
    assert all(np.isnan(record.seconds) for record in run.history)
    assert not any(record.metrics for record in run.history)
    for name in ("score", "relative_error", "worst_client"):
        assert not hasattr(run, name)
    assert "relative error" not in repr(run)
    assert set(run.owners_only.scores) == set(owners())
    assert 0 < run.measured.relative_error < 1
    X = np.concatenate(list(owners().values()))
    private = fedfactor.dp(1.0, row_bound=2.0, rows=240)
    model = fedfactor.PooledNMF(3, n_clients=4, rounds=2, random_state=0, tol=0).fit(X)
    assert model.relative_error_ > 0
    model.set_params(privacy=private).fit(X)
    assert not hasattr(model, "relative_error_")
    with pytest.raises(AttributeError, match=r"not released .*model\.score\(X\)"):
        model.relative_error_  # noqa: B018
    assert not hasattr(fedfactor.load(fedfactor.save(model, tmp_path / "saved")), "relative_error_")
    assert not hasattr(model, "reconstruction_err_")
    plain = fedfactor.run(PooledNMF(3), owners(), rounds=2, privacy="secure-sum")
    assert plain.relative_error == plain.measured.relative_error


@pytest.mark.parametrize("odd", ["first", "last"])
def test_the_precision_of_V_does_not_follow_one_client(odd):
    """One client of double precision made V double: a fact about that client, without noise."""
    rng = np.random.default_rng(0)
    data = {name: rng.random((150, 6)).astype(np.float32) for name in ("a", "b", "c", "d")}
    name = "a" if odd == "first" else "d"
    asked = fedfactor.dp(2.0, row_bound=3.0, rows=600, noise_seed=1)
    assert fedfactor.run(PooledNMF(2), data, rounds=2, privacy=asked).V.dtype == np.float32
    data[name] = data[name].astype(np.float64)
    with pytest.raises(IncompatibleError, match=f"Client '{name}' has data of double precision"):
        fedfactor.run(PooledNMF(2), data, rounds=2, privacy=asked)
    data = {name: X.astype(np.float64) for name, X in data.items()}
    assert fedfactor.run(PooledNMF(2), data, rounds=2, privacy=asked).V.dtype == np.float64
