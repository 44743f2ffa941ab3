"""Whole runs with noise: what is paid, what is dropped, what is refused, and what a crash may not do."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import FELB, FNMF, FedAvgNMF, PooledBMF, PooledNMF
from fedfactor.core.errors import CheckpointError, ClientUnavailable, DataError, IncompatibleError
from fedfactor.linalg.row_clipping import CURVED_NORM
from fedfactor.privacy import (
    BudgetError,
    Clip,
    Gaussian,
    Ledger,
    Listener,
    PaperNoise,
    PrivacyWarning,
    RefusedError,
    SecureSum,
    calibrate,
    describe,
)
from fedfactor.privacy.ledger import Entry
from fedfactor.privacy.planner import make_plan
from fedfactor.privacy.row_statistics import SENSITIVITY, row_survey
from fedfactor.privacy.secure_aggregation.masked_sum import AbortError

pytest.importorskip("dp_accounting")
pytest.importorskip("cryptography")


def owners(n_clients=5, rows=60, features=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n_clients * rows, 3)) @ rng.random((3, features))
    return {f"c{i}": part for i, part in enumerate(np.split(X, n_clients))}


PUBLIC = {"row_bound": 3.0, "rows": 300}


class TestRowLevel:
    @pytest.mark.slow
    def test_the_budget_is_that_of_the_whole_run(self):
        run = fedfactor.run(PooledNMF(3), owners(), rounds=8, seed=0, privacy=fedfactor.dp(1.0, **PUBLIC))
        about = run.privacy
        assert about["epsilon_tight"] < 1 < 1.0001 > about["epsilon"] > 0.999
        assert about["noise_multiplier"] == pytest.approx(calibrate(1.0, 1e-5, 8))
        assert (about["unit"], about["delta"], about["noise_is"]) == ("row", 1e-5, "distributed")
        assert "a person with several rows" in describe(about)
        assert run.rounds == 8

    @pytest.mark.slow
    def test_the_server_hears_gradients_with_the_noise_that_was_paid_for(self):
        heard = Listener()
        big = fedfactor.dp(1.0, noise_multiplier=50.0, row_bound=3.0, rows=300)
        fedfactor.run(PooledNMF(3), owners(), rounds=1, seed=0, privacy=(heard, fedfactor.dp(1e4, **PUBLIC)))
        exact = heard.rounds[0][1].D
        heard.rounds.clear()
        noises = []
        for _ in range(40):
            fedfactor.run(PooledNMF(3), owners(), rounds=1, seed=0, privacy=(heard, big))
            noises.append(heard.rounds.pop()[1].D - exact)
        # Five clients, all needed at 90 %: the noise of the sum is what the ledger says.
        spread = np.std(noises)
        expected = 50.0 * CURVED_NORM  # in units of the clip
        assert spread == pytest.approx(expected, rel=4 / np.sqrt(2 * np.size(noises)))

    def test_no_loss_is_released(self):
        run = fedfactor.run(PooledNMF(3), owners(), rounds=3, seed=0, privacy=fedfactor.dp(1.0, **PUBLIC))
        assert all(record.metrics == {} for record in run.history)

    @pytest.mark.slow
    def test_what_is_not_public_is_estimated_and_paid_for(self):
        data = owners(rows=400)
        run = fedfactor.run(PooledNMF(3), data, rounds=5, seed=0, privacy=fedfactor.dp(2.0, noise_seed=0))
        lengths = np.concatenate([np.linalg.norm(X, axis=1) for X in data.values()])
        assert run.privacy["rows"] == pytest.approx(2000, abs=200)
        assert np.quantile(lengths, 0.7) < run.privacy["row_bound"] < 1.3 * lengths.max()
        assert 1.99 < run.privacy["epsilon"] <= 2
        assert run.privacy["noise_multiplier"] > calibrate(2.0, 1e-5, 5)

    @pytest.mark.slow
    @pytest.mark.parametrize("length", [0.01, 6.08, 5000.0])
    def test_the_bound_that_was_paid_for_is_near_the_rows_whatever_the_noise(self, length):
        rows = {str(i): np.full((320, 4), length / 2) for i in range(10)} | {"zeros": np.zeros((3000, 4))}
        noise = Gaussian(18.0, SENSITIVITY, whole=False, honest=9)  # as for 30 rounds at ε = 1
        for seed in range(40):
            count, bound = row_survey(fedfactor.Federation(rows), noise, None, b"", seed)
            assert length <= bound < 1.2 * length
            assert abs(count - 3200) < 200

    def test_rows_of_many_lengths_that_no_single_bin_shows(self):
        lengths = np.exp(np.random.default_rng(0).uniform(-2, 2, 900))
        noise = Gaussian(18.0, SENSITIVITY, whole=False)
        bounds = [row_survey(fedfactor.Federation([lengths[:, None]]), noise, None, b"", s)[1] for s in range(20)]
        assert all(0.1 < bound / np.quantile(lengths, 0.9) < 4 for bound in bounds)

    def test_a_delta_that_allows_to_publish_rows_is_warned_of(self):
        with pytest.warns(PrivacyWarning, match="one over the number of rows"):
            fedfactor.run(PooledNMF(3), owners(), rounds=1, privacy=fedfactor.dp(1.0, 0.01, **PUBLIC))

    @pytest.mark.slow
    def test_local_noise_needs_no_secure_sum_and_is_louder(self):
        heard = Listener()
        for share in ("distributed", "local"):
            privacy = fedfactor.dp(0.01, noise=share, **PUBLIC)  # so that noise is all there is
            fedfactor.run(PooledNMF(3), owners(), rounds=20, seed=0, privacy=(heard, privacy))
        totals = [total.D for _, total, _ in heard.rounds]
        assert np.std(totals[20:]) > 1.5 * np.std(totals[:20])

    @pytest.mark.slow
    def test_boolean_rows(self):
        X = np.kron(np.eye(2), np.ones((300, 6)))
        parts = np.array_split(np.random.default_rng(0).permutation(X), 5)
        run = fedfactor.run(
            PooledBMF(2, solver="proximal"), parts, seed=0, privacy=fedfactor.dp(4.0, row_bound=2.5, rows=600)
        )
        assert np.isin(run.V, (0, 1)).all()
        assert run.measured.relative_error < 0.2

    @pytest.mark.slow
    def test_a_seeded_run_is_called_a_simulation(self):
        one, two = (
            fedfactor.run(PooledNMF(3), owners(), rounds=2, seed=0, privacy=fedfactor.dp(1.0, noise_seed=1, **PUBLIC))
            for _ in range(2)
        )
        np.testing.assert_array_equal(one.V, two.V)
        assert one.privacy["void"]
        assert any("from a seed" in why for why in one.privacy["simulation"])
        secret = [
            fedfactor.run(PooledNMF(3), owners(), rounds=2, seed=0, privacy=fedfactor.dp(1.0, **PUBLIC))
            for _ in range(2)
        ]
        assert (secret[0].V != secret[1].V).any()
        assert not secret[0].privacy["void"]


class TestOtherUnits:
    @pytest.mark.slow
    def test_client_level_noise_and_equal_weights(self):
        privacy = fedfactor.dp(8.0, unit="client", clip=0.5)
        run = fedfactor.run(FedAvgNMF(3, weights="rows"), owners(8), rounds=3, seed=0, privacy=privacy)
        assert run.algorithm.weights == "equal"
        assert run.privacy["unit"] == "client"
        assert run.rounds == 3

    @pytest.mark.slow
    def test_a_wide_clip_without_noise_is_plain_averaging(self):
        channel = (Clip(100.0), SecureSum())
        noisy = fedfactor.run(FedAvgNMF(3, weights="equal", tol=0), owners(8), rounds=4, seed=0, privacy=channel)
        plain = fedfactor.run(FedAvgNMF(3, weights="equal", tol=0), owners(8), rounds=4, seed=0)
        np.testing.assert_allclose(noisy.V, plain.V, rtol=1e-6, atol=1e-6)

    @pytest.mark.slow
    def test_secret_sampling_of_clients_costs_less_noise(self):
        privacy = fedfactor.dp(2.0, unit="client", clip=0.5, sampling=0.5)
        run = fedfactor.run(FELB(2), _binary(8), rounds=5, seed=0, privacy=privacy)
        assert run.privacy["noise_multiplier"] < calibrate(2.0, 1e-5, 5)
        assert run.privacy["epsilon"] <= 2

    def test_a_subject_with_many_rows_counts_up_to_its_cap(self):
        data = owners()
        ids = {name: np.arange(len(X)) // 10 for name, X in data.items()}
        row = fedfactor.dp(0.01, **PUBLIC)
        subject = fedfactor.dp(0.01, unit="subject", subject=ids, cap=4, **PUBLIC)
        heard = Listener()
        run = fedfactor.run(PooledNMF(3), data, rounds=1, seed=0, privacy=(heard, subject))
        fedfactor.run(PooledNMF(3), data, rounds=1, seed=0, privacy=(heard, row))
        assert run.privacy["unit"] == "subject"
        assert np.std(heard.rounds[0][1].D) > 2 * np.std(heard.rounds[1][1].D)
        assert run.factors["c0"].U.shape == (60, 3)
        assert (run.factors["c0"].U.sum(axis=1) > 0).all()

    def test_a_subject_known_to_several_clients_is_covered_when_it_is_said(self):
        data = owners()
        ids = {name: np.arange(len(X)) // 2 for name, X in data.items()}
        plans = [
            make_plan(
                fedfactor.dp(1.0, unit="subject", subject=ids, cap=2, known_to=known, **PUBLIC),
                PooledNMF(3), fedfactor.Federation(data), 5, simulation=True,
            )
            for known in (1, 3)
        ]  # fmt: skip
        noise = [next(t for t in plan.channel.links if isinstance(t, Gaussian)) for plan in plans]
        assert noise[1].sensitivity == pytest.approx(3 * noise[0].sensitivity)
        assert (noise[0].touched, noise[1].touched) == (1, 3)
        assert "more than 3 clients" in " ".join(plans[1].channel.report(5)["not_covered"])

    def test_every_upload_that_a_unit_touches_is_rounded_and_paid_for(self):
        size, noise = 1000, Gaussian(4.0, 1.0, whole=False, honest=3, touched=3)
        grid = noise.grid(size)
        steps = 2.0**noise.bits * np.sqrt(3)  # the standard deviation of the sum, in steps of the grid
        assert steps >= 4.0 * (1.0 / grid + 3 * np.sqrt(size)) * (1 - 1e-12)

    def test_subjects_named_by_a_column_of_the_frame(self):
        pandas = pytest.importorskip("pandas")
        rng = np.random.default_rng(0)
        frames = {
            name: pandas.DataFrame({"patient": np.arange(40) // 4 + 1.0, **{f"f{j}": rng.random(40) for j in range(5)}})
            for name in "abc"
        }
        privacy = fedfactor.dp(4.0, unit="subject", subject="patient", cap=2, row_bound=2.0, rows=120)
        run = fedfactor.run(PooledNMF(2), frames, rounds=3, seed=0, privacy=privacy)
        assert run.factors["a"].U.shape == (40, 2)
        measured = sum((frame.drop(columns="patient") ** 2).to_numpy().sum() for frame in frames.values())
        assert float(run.measured.score.total) == pytest.approx(measured)  # a name is no measurement
        strange = fedfactor.dp(4.0, unit="subject", subject="nobody", row_bound=2.0, rows=120)
        with pytest.raises(DataError, match="no column 'nobody'"):
            fedfactor.run(PooledNMF(2), frames, rounds=3, privacy=strange)
        short = fedfactor.dp(1.0, unit="subject", subject={n: [1, 2, 3] for n in "abc"}, row_bound=2.0, rows=9)
        with pytest.raises(DataError, match="40 rows but 3 subject ids"):
            fedfactor.run(PooledNMF(2), frames, rounds=3, privacy=short)


def _binary(n):
    rng = np.random.default_rng(0)
    return {str(i): (rng.random((30, 8)) < 0.4) * 1.0 for i in range(n)}


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"epsilon": 0}, "0 < epsilon"),
            ({"epsilon": 1, "delta": 2}, "0 < delta"),
            ({"epsilon": 1, "unit": "person"}, "unit='person' is not known"),
            ({"epsilon": 1, "unit": "client"}, "clip bounds whole uploads"),
            ({"epsilon": 1, "unit": "subject"}, "subject names whose rows"),
            ({"epsilon": 1, "sampling": 0.5}, "sampling must lie"),
            ({"epsilon": 1, "noise": "some"}, "noise='some' is not known"),
            ({"epsilon": 1, "cap": 2}, "cap and known_to"),
            ({"epsilon": 1, "known_to": 0}, "cap and known_to"),
            ({"epsilon": 1, "row_bound": 0}, "row_bound=0 must be positive"),
            ({"epsilon": 1, "noise_multiplier": -1}, "noise_multiplier=-1 must be positive"),
        ],
    )
    def test_words(self, options, words):
        with pytest.raises(ValueError, match=words):
            fedfactor.dp(**options)

    def test_methods_without_a_row_bound(self):
        with pytest.raises(IncompatibleError, match="has no bound on what one row can change"):
            fedfactor.run(FedAvgNMF(3), owners(), privacy=fedfactor.dp(1.0))

    def test_missing_cells(self):
        data = {name: np.where(X > 0.9, np.nan, X) for name, X in owners().items()}
        federation = fedfactor.Federation(data, missing_values=np.nan)
        with pytest.raises(IncompatibleError, match="sums of Newton steps alone"):
            fedfactor.run(PooledNMF(3, noisy_step="gradient"), federation, privacy=fedfactor.dp(1.0))

    def test_more_noise_links(self):
        with pytest.raises(IncompatibleError, match="brings its own bounds"):
            fedfactor.run(PooledNMF(3), owners(), privacy=(fedfactor.dp(1.0), Clip(1.0)))

    def test_everybody_colludes(self):
        with pytest.raises(IncompatibleError, match="no client is left whose noise counts"):
            fedfactor.run(PooledNMF(3), owners(), privacy=fedfactor.dp(1.0, colluding=5))

    def test_too_few_clients_to_share_the_noise(self):
        with pytest.raises(IncompatibleError, match="noise='local'"):
            fedfactor.run(PooledNMF(3), owners(2), privacy=fedfactor.dp(1.0, **PUBLIC))
        alone = fedfactor.run(PooledNMF(3), owners(1), rounds=2, privacy=fedfactor.dp(1.0, noise="local", **PUBLIC))
        assert alone.privacy["epsilon"] <= 1

    def test_a_cohort_too_small_for_the_noise_that_was_paid_for(self):
        with pytest.raises(AbortError, match="its minimum is 5"):
            fedfactor.run(PooledNMF(3), owners(), rounds=2, participation=0.6, privacy=fedfactor.dp(1.0, **PUBLIC))

    def test_shares_of_noise_on_uploads_that_are_seen_one_by_one(self):
        privacy = (fedfactor.dp(1.0, unit="client", clip=1.0), SecureSum(gathered="clear"))
        with pytest.raises(IncompatibleError, match="each upload holds a share only"):
            fedfactor.run(FNMF(3), owners(), rounds=1, privacy=privacy)

    def test_local_noise_under_a_secure_sum(self):
        with pytest.raises(IncompatibleError, match="excludes secure aggregation"):
            fedfactor.run(PooledNMF(3), owners(), privacy=(fedfactor.dp(1.0, noise="local"), "secure-sum"))


class TestLedger:
    def test_a_run_stops_when_its_budget_is_spent(self):
        z = calibrate(1.0, 1e-5, 4)
        run = fedfactor.run(
            PooledNMF(3), owners(), rounds=9, seed=0, privacy=fedfactor.dp(1.0, noise_multiplier=z, **PUBLIC)
        )
        assert (run.rounds, run.status) == (4, "budget")
        assert run.privacy["epsilon"] <= 1

    @pytest.mark.slow
    def test_the_books_of_a_data_set_run_across_runs(self, tmp_path):
        books = tmp_path / "patients.jsonl"
        opened = Ledger(books, epsilon=9.0)
        for _ in range(2):
            fedfactor.run(PooledNMF(3), owners(), rounds=3, privacy=fedfactor.dp(1.0, ledger=opened, **PUBLIC))
        ledger = Ledger(books)
        assert len(ledger.entries()) == 6
        assert 1.2 < ledger.epsilon(1e-5) < 2
        tight = Ledger(books, epsilon=ledger.epsilon(1e-5) + 0.15)
        third = fedfactor.run(PooledNMF(3), owners(), rounds=3, privacy=(fedfactor.dp(1.0, **PUBLIC), tight))
        assert third.status == "budget"
        assert third.rounds < 3
        with pytest.raises(BudgetError, match="Not even one round"):
            fedfactor.run(PooledNMF(3), owners(), rounds=3, privacy=(fedfactor.dp(1.0, **PUBLIC), tight))

    @pytest.mark.slow
    def test_a_release_without_noise_or_proof_is_infinite(self):
        for channel in (
            ("secure-sum",),
            (PaperNoise("gaussian", 1.0),),
            (Gaussian(5.0, 1.0, whole=True, share="local"),),  # nothing bounds the upload
            (Clip(2.0), Gaussian(5.0, 1.0, whole=True, share="local")),  # the bound is larger than was said
            (Clip(1.0), Gaussian(5.0, 1.0, whole=True, honest=9), SecureSum()),  # nine share the noise, five are there
        ):
            ledger = Ledger()
            fedfactor.run(FedAvgNMF(3), owners(), rounds=2, privacy=(*channel, ledger))
            assert ledger.epsilon(1e-5) == math.inf

    def test_a_bounded_channel_of_one_s_own_is_finite(self):
        ledger = Ledger(unit="client")
        channel = (Clip(1.0), Gaussian(5.0, 1.0, whole=True, share="local"), ledger)
        fedfactor.run(FedAvgNMF(3, weights="equal"), owners(), rounds=2, privacy=channel)
        assert 0 < ledger.epsilon(1e-5) < 2

    def test_row_noise_says_nothing_about_clients(self):
        by_row, by_client = Ledger(unit="row"), Ledger(unit="client")
        fedfactor.run(PooledNMF(3), owners(), rounds=2, privacy=(fedfactor.dp(1.0, **PUBLIC), by_client))
        assert by_client.epsilon(1e-5) == math.inf
        privacy = fedfactor.dp(1.0, unit="client", clip=1.0)
        fedfactor.run(FedAvgNMF(3), owners(), rounds=2, privacy=(privacy, by_row))
        assert by_row.epsilon(1e-5) <= 1

    def test_client_noise_says_nothing_about_subjects_with_rows_at_several_clients(self):
        for unit, finite in (("row", True), ("subject", False), ("client", True)):
            ledger = Ledger(unit=unit)
            ledger.debit(Entry("run", 0, 20.0, "client"))
            assert math.isfinite(ledger.epsilon(1e-5)) == finite

    def test_public_numbers_that_differ_between_clients_are_not_released_beside_noise(self):
        class Weighty(FedAvgNMF):  # weighs by rows, whatever its settings say
            def client_step(self, shard, state, down, at):
                state, up = FedAvgNMF.client_step(self, shard, state, down, at)
                return state, replace(up, weight=np.float64(shard.n_rows))

        with pytest.raises(IncompatibleError, match="public number other than 1"):
            fedfactor.run(Weighty(3), owners(), rounds=1, privacy=fedfactor.dp(1.0, unit="client", clip=1.0))

    def test_a_torn_last_line_never_happened(self, tmp_path):
        books = tmp_path / "books.jsonl"
        held = Ledger(books, epsilon=5.0)
        fedfactor.run(PooledNMF(3), owners(), rounds=2, privacy=fedfactor.dp(1.0, ledger=held, **PUBLIC))
        whole = books.read_bytes()
        books.write_bytes(whole + whole.split(b"\n")[0][:40])
        assert len(Ledger(books).entries()) == 2
        fedfactor.run(PooledNMF(3), owners(), rounds=1, privacy=fedfactor.dp(1.0, ledger=books, **PUBLIC))
        assert len(Ledger(books).entries()) == 3

    @pytest.mark.slow
    def test_a_crash_redraws_no_noise_and_spends_nothing_twice(self, tmp_path):
        heard, books = Listener(), tmp_path / "books.jsonl"
        privacy = (heard, fedfactor.dp(1.0, ledger=books))
        options = {"rounds": 6, "seed": 0, "privacy": privacy, "checkpoint": fedfactor_checkpoint(tmp_path / "run", 10)}

        def crash(record):
            if record.index == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fedfactor.run(PooledNMF(3), owners(rows=400), callbacks=[crash], **options)
        assert len(heard.rounds) == 4
        spent = Ledger(books).epsilon(1e-5)
        fedfactor.run(PooledNMF(3), owners(rows=400), **options)
        first, again = heard.rounds[:4], heard.rounds[4:8]
        for (_, before, _), (_, after, _) in zip(first, again, strict=True):
            np.testing.assert_array_equal(before.D, after.D)
        assert sorted((entry.round, entry.what) for entry in Ledger(books).entries()) == [
            (-1, "survey"),
            *((i, "sum") for i in range(6)),
        ]
        assert spent < Ledger(books).epsilon(1e-5) <= 1

    def test_a_run_whose_checkpoint_was_deleted_does_not_draw_its_noise_again(self, tmp_path):
        options = {"seed": 0, "privacy": fedfactor.dp(1.0, **PUBLIC), "checkpoint": tmp_path / "run"}
        (tmp_path / "run" / "outbox").mkdir(parents=True)
        (tmp_path / "run" / "outbox" / ".000000-torn.part").touch()  # as a kill in the middle of writing leaves it
        fedfactor.run(PooledNMF(3), owners(), rounds=3, **options)
        left = {path.name for path in (tmp_path / "run" / "outbox").iterdir()}
        assert left == {"settled", ".000000-torn.part"}
        (tmp_path / "run" / "run.safetensors").unlink()
        with pytest.raises(CheckpointError, match="Round 0 was released before"):
            fedfactor.run(PooledNMF(3), owners(), rounds=3, **options)

    @pytest.mark.slow
    def test_a_sum_that_was_opened_is_not_opened_again_without_somebody(self, tmp_path):
        def crash(record):
            raise KeyboardInterrupt

        away = set()

        class Flaky(PooledNMF):
            def client_step(self, shard, state, down, at):
                if at.client in away:
                    raise ClientUnavailable
                return PooledNMF.client_step(self, shard, state, down, at)

        options = {"seed": 0, "rounds": 3, "checkpoint": fedfactor_checkpoint(tmp_path / "run", 10)}
        privacy = (fedfactor.dp(1.0, **PUBLIC), SecureSum(threshold=0.75))
        with pytest.raises(KeyboardInterrupt):
            fedfactor.run(Flaky(3), owners(), callbacks=[crash], privacy=privacy, **options)
        away.add("c3")
        with pytest.raises(RefusedError, match="'c3' has come or gone"):
            fedfactor.run(Flaky(3), owners(), privacy=privacy, **options)
        away.clear()
        assert fedfactor.run(Flaky(3), owners(), privacy=privacy, **options).rounds == 3

    def test_other_noise_under_the_same_name_is_another_release(self, tmp_path):
        def crash(record):
            raise KeyboardInterrupt

        options = {"seed": 0, "rounds": 3, "checkpoint": fedfactor_checkpoint(tmp_path / "run", 10)}
        with pytest.raises(KeyboardInterrupt):
            fedfactor.run(PooledNMF(3), owners(), callbacks=[crash], privacy=fedfactor.dp(1.0, **PUBLIC), **options)
        with pytest.raises(CheckpointError, match="belongs to another run"):
            fedfactor.run(PooledNMF(3), owners(), privacy=fedfactor.dp(9.0, **PUBLIC), **options)
        with pytest.raises(CheckpointError, match="its seed was 0"):  # its noisy uploads were made for another V
            fedfactor.run(PooledNMF(3), owners(), privacy=fedfactor.dp(1.0, **PUBLIC), **options | {"seed": 1})
        (tmp_path / "run" / "run.safetensors").unlink()
        with pytest.raises(BudgetError, match="in the books with other noise"):
            fedfactor.run(PooledNMF(3), owners(), privacy=fedfactor.dp(9.0, **PUBLIC), **options)

    def test_a_survey_that_a_crash_hid_is_sent_again_as_it_was(self, tmp_path):
        data, run = fedfactor.Federation(owners(rows=400)), []
        for _ in range(2):
            plan = make_plan(fedfactor.dp(1.0), PooledNMF(3), data, 5, simulation=True, folder=tmp_path)
            run.append((plan.algorithm.row_clip, plan.algorithm.row_count))
            (tmp_path / "survey.json").unlink()  # as if the crash had come just before it was written
        assert run[0] == run[1]


def fedfactor_checkpoint(folder, every):
    from fedfactor.engines.checkpoint import Checkpoint

    return Checkpoint(folder, every)


@pytest.mark.slow
def test_an_estimator_takes_the_same_words():
    X = np.concatenate(list(owners().values()))
    model = fedfactor.PooledNMF(3, n_clients=5, rounds=3, random_state=0, privacy=fedfactor.dp(1.0, **PUBLIC)).fit(X)
    assert model.components_.shape == (3, 12)
    assert model.run_.privacy["epsilon"] <= 1
    secure = fedfactor.PooledNMF(3, n_clients=5, rounds=3, random_state=0, privacy=SecureSum()).fit(X)
    assert secure.run_.privacy["mode"] == "secure-sum"
