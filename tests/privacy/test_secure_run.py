"""Whole runs under a secure sum: the same V, refusals before round 0, and what the server is told."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import fedfactor
from fedfactor.algorithms import FELB, FNMF, FedAvgNMF, FedProxNMF, PooledBMF, PooledNMF
from fedfactor.core.errors import ClientUnavailable, IncompatibleError, ProtocolError
from fedfactor.privacy import Clip, Gaussian, Listener, Minimums, PaperNoise, PrivacyWarning, RefusedError, SecureSum
from fedfactor.privacy.secure_aggregation.masked_sum import AbortError

pytest.importorskip("cryptography")
ALLOWED = Minimums(allow=("small-client", "few-clients", "rare-columns", "changed-cohort"))


def owners(n_clients=5, rows=60, features=20, seed=0, binary=False):
    rng = np.random.default_rng(seed)
    X = rng.random((n_clients * rows, 4)) @ rng.random((4, features)) + 0.05 * rng.random((n_clients * rows, features))
    X = (X > np.median(X)) * 1.0 if binary else X
    return {f"c{i}": part for i, part in enumerate(np.split(X, n_clients))}


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@pytest.mark.parametrize(
    ("method", "binary", "rounds"),
    [
        (PooledNMF(4, tol=0), False, 20),
        *(
            pytest.param(method, binary, rounds, marks=pytest.mark.slow)
            for method, binary, rounds in (
                (PooledNMF(4, tol=0), False, 100),
                (FedAvgNMF(4, local_steps=3, tol=0), False, 25),
                (FedProxNMF(4, tol=0), False, 25),
                (FNMF(4, barycenter="client", tol=0), False, 25),
                (PooledBMF(3), True, 25),
                (PooledBMF(3, solver="proximal", tol=0), True, 25),
                (FELB(3, tol=0), True, 25),
            )
        ),
    ],
    ids=lambda value: value if isinstance(value, int) and value > 1 else type(value).__name__,
)
def test_v_is_that_of_plain_sums_up_to_the_quantisation(method, binary, rounds):
    data = owners(binary=binary)
    plain = fedfactor.run(method, data, rounds=rounds, seed=1)
    secure = fedfactor.run(method, data, rounds=rounds, seed=1, privacy=(SecureSum(), ALLOWED))
    assert plain.rounds == secure.rounds
    assert relative(secure.V, plain.V) <= 1e-5


@pytest.mark.slow
def test_sparse_rows_and_single_precision():
    data = {name: scipy.sparse.csr_array(X.astype(np.float32)) for name, X in owners().items()}
    plain = fedfactor.run(PooledNMF(3, tol=0), data, rounds=10, seed=0)
    secure = fedfactor.run(PooledNMF(3, tol=0), data, rounds=10, seed=0, privacy=(SecureSum(), ALLOWED))
    assert secure.V.dtype == np.float32
    assert relative(secure.V, plain.V) < 1e-3  # as far as these runs are from those in double precision


def test_telemetry_is_summed_so_that_the_loss_is_known():
    run = fedfactor.run(PooledNMF(3), owners(), rounds=5, seed=0, privacy=(SecureSum(), ALLOWED))
    assert run.history[-1].metrics["relative_error"] > 0


def test_large_losses_fit_and_large_sums_are_refused_with_a_remedy():
    big = {name: 300 * X for name, X in owners().items()}
    assert fedfactor.run(PooledNMF(3), big, rounds=3, seed=0, privacy=(SecureSum(), ALLOWED)).rounds == 3
    huge = {name: 1e9 * X for name, X in owners().items()}
    with pytest.raises(ProtocolError, match="fractional_bits="):
        fedfactor.run(PooledNMF(3), huge, rounds=3, seed=0, privacy=(SecureSum(), ALLOWED))


class TestBeforeRoundZero:
    def test_uploads_that_must_be_seen_one_by_one(self):
        with pytest.raises(IncompatibleError, match=r"FNMF must see each upload \(Own"):
            fedfactor.run(FNMF(3), owners(), privacy="secure-sum")

    def test_two_clients(self):
        with pytest.raises(IncompatibleError, match="each can subtract its own part"):
            fedfactor.run(PooledNMF(3), owners(2), privacy="secure-sum")

    @pytest.mark.parametrize(
        ("channel", "words"),
        [
            ((SecureSum(), Clip(1.0)), "wrong order"),
            ((Clip(1.0), Gaussian(1.0, 1.0, whole=True)), "add SecureSum, or share='local'"),
            ((SecureSum(), "median"), "two links that do the same"),
            ((3,), "no transform"),
        ],
    )
    def test_channels_that_protect_nothing(self, channel, words):
        with pytest.raises(IncompatibleError, match=words):
            fedfactor.run(FedAvgNMF(3), owners(), privacy=channel)


class TestMinimums:
    def test_small_clients_warn_in_a_simulation_and_are_refused_between_parties(self):
        with pytest.warns(PrivacyWarning, match="fewer than 100 rows"):
            fedfactor.run(PooledNMF(3), owners(), rounds=2, privacy="secure-sum")
        with pytest.raises(RefusedError, match="fewer than 100 rows"):
            fedfactor.run(PooledNMF(3), owners(), rounds=2, privacy=("secure-sum", Minimums(strict=True)))

    def test_uploads_in_the_clear_of_no_more_rows_than_components(self):
        data = owners(rows=3)
        with pytest.warns(PrivacyWarning, match="no more rows than components"):
            fedfactor.run(PooledNMF(3), data, rounds=2)
        for seen_alone in ("median", PaperNoise("gaussian", 1.0)):
            with pytest.warns(PrivacyWarning, match="no more rows than components"):
                fedfactor.run(FedAvgNMF(3), data, rounds=1, privacy=seen_alone)
            with pytest.raises(RefusedError, match="no more rows than components"):
                fedfactor.run(FedAvgNMF(3), data, rounds=1, privacy=(seen_alone, Minimums(strict=True)))

    def test_noise_without_a_proof_lifts_no_minimum(self):
        channel = (PaperNoise("gaussian", 1.0), SecureSum(), Minimums(strict=True))
        with pytest.raises(RefusedError, match="fewer than 100 rows"):
            fedfactor.run(FedAvgNMF(3), owners(), rounds=1, privacy=channel)

    def test_a_coordinator_who_is_a_client_does_not_count(self):
        rule = Minimums(coordinator_is_client=True, strict=True, allow=("small-client",))
        with pytest.raises(RefusedError, match="2 clients that do not collude"):
            fedfactor.run(PooledNMF(3), owners(3), rounds=2, privacy=("secure-sum", rule))

    @pytest.mark.slow
    def test_rare_columns_are_withheld_and_u_is_fitted_at_home_to_all(self):
        data = owners()
        data["c0"] = data["c0"].copy()
        for X in data.values():
            X[:, 7] = 0
        data["c0"][5, 7] = 9.0
        heard = Listener()
        rule = Minimums(allow=("small-client",))
        run = fedfactor.run(PooledNMF(3), data, rounds=4, seed=0, privacy=(heard, "secure-sum", rule))
        assert run.privacy["withheld_columns"] == 1
        assert all((total.A[:, 7] == 0).all() for _, total, _ in heard.rounds)
        assert float(run.score.total) == pytest.approx(sum((X**2).sum() for X in data.values()))

    def test_rare_columns_merged_are_shown_as_one_if_enough_rows_fill_it(self):
        data = owners()
        for i, X in enumerate(data.values()):
            X[:, 10:16] = 0
            X[i, 10] = X[i + 10, 11 + i % 5] = 1.0
        heard = Listener()
        rule = Minimums(allow=("small-client",), rare_columns="merge", column_rows=8)
        run = fedfactor.run(PooledNMF(3), data, rounds=2, seed=0, privacy=(heard, "secure-sum", rule))
        assert run.privacy["withheld_columns"] >= 5
        A = heard.rounds[0][1].A
        assert (A[:, 11:16] == 0).all()
        assert A[:, 10].any()

    def test_rare_columns_may_be_refused(self):
        data = owners()
        for X in data.values():
            X[:, 7] = 0
        data["c0"][5, 7] = 9.0
        rule = Minimums(allow=("small-client",), rare_columns="refuse", strict=True)
        with pytest.raises(RefusedError, match="1 columns are filled by fewer than 5 rows"):
            fedfactor.run(PooledNMF(3), data, rounds=2, privacy=("secure-sum", rule))

    @pytest.mark.slow
    def test_a_changed_cohort(self):
        def rule(at, names):
            return names if at.index < 2 else names[1:]

        strict = Minimums(strict=True, allow=("small-client",))
        with pytest.raises(RefusedError, match="'c0' came or went"):
            fedfactor.run(PooledNMF(3), owners(), rounds=4, participation=rule, privacy=("secure-sum", strict))
        run = fedfactor.run(
            PooledNMF(3, tol=0), owners(), rounds=4, participation=rule, privacy=("secure-sum", ALLOWED)
        )
        assert [len(r.participants) for r in run.history] == [5, 5, 4, 4]

    def test_unknown_words(self):
        with pytest.raises(ValueError, match="is not a minimum"):
            fedfactor.run(PooledNMF(3), owners(), privacy=("secure-sum", Minimums(allow=("anything",))))


@pytest.mark.slow
def test_clients_that_drop_out_after_the_keys_are_made_up_for():
    class Dropping(PooledNMF):
        def client_step(self, shard, state, down, at):
            if at.client in ("c0", "c3", "c7") and at.index == 2:
                raise ClientUnavailable
            return PooledNMF.client_step(self, shard, state, down, at)

    data = owners(10)
    channel = (SecureSum(), ALLOWED)
    secure = fedfactor.run(Dropping(3, tol=0), data, rounds=5, seed=0, privacy=channel)
    plain = fedfactor.run(Dropping(3, tol=0), data, rounds=5, seed=0)
    assert [len(r.participants) for r in secure.history] == [10, 10, 7, 10, 10]
    assert relative(secure.V, plain.V) < 1e-6
    with pytest.raises(AbortError, match=r"8 .*are needed"):
        fedfactor.run(Dropping(3), data, rounds=5, seed=0, privacy=(SecureSum(threshold=0.8), ALLOWED))


@pytest.mark.slow
def test_a_summary_says_who_sees_what():
    run = fedfactor.run(PooledNMF(3), owners(), rounds=3, privacy=("secure-sum", ALLOWED))
    about = run.summary()["privacy"]
    assert about["epsilon"] == float("inf")
    assert "no single one" in about["sees"]["server"]
    assert any("sums of many rounds can reveal" in line for line in about["not_covered"])
    assert about["exact_sums_at_most"]["rows"] == 300
    assert about["exact_sums_at_most"]["equations_per_column"] >= 9
    assert fedfactor.run(PooledNMF(3), owners(), rounds=3).summary()["privacy"]["sees"]["server"] == "every upload"


def test_an_engine_that_only_knows_clear_uploads_says_so():
    class Clear:
        def run(self, algorithm, federation, **options):
            raise AssertionError("not reached")

    with pytest.raises(IncompatibleError, match="Clear carries uploads in the clear"):
        fedfactor.run(PooledNMF(3), owners(), engine=Clear(), privacy="secure-sum")
