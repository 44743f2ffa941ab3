"""From a user's words to a channel."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from fedfactor.aggregation import Robust
from fedfactor.algorithms import FNMF, FedAvgNMF, PooledNMF
from fedfactor.core.algorithm import Meta
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.transforms import Transform
from fedfactor.linalg.row_clipping import useful_rounds
from fedfactor.privacy import Clip, Gaussian, Ledger, Minimums, SecureSum, calibrate, dp
from fedfactor.privacy.agreed_noise import _rounded_up, agree_on_noise, noisy_channel, whole_cohort
from fedfactor.privacy.minimums import PrivacyWarning, RefusedError
from fedfactor.privacy.noise_shares import secure_for_noise
from fedfactor.privacy.planner import (
    CLIENT_ROUNDS,
    ROW_ROUNDS,
    alike_for_noise,
    bound_rows,
    check_bears,
    entry_of,
    for_links,
    make_plan,
    noise_links,
    parts_of,
    spread_plan,
)

pytest.importorskip("dp_accounting")
pytest.importorskip("cryptography")
META = Meta(4, ("a", "b", "c"), n_rows=300)
Z = {"noise_multiplier": 3.0}  # so that nothing is calibrated


@pytest.fixture(scope="module")
def owners():
    rng = np.random.default_rng(0)
    return Federation({name: rng.random((100, 4)) for name in "abc"})


class TestWords:
    def test_are_told_apart(self):
        asked, least, books, clip = dp(1.0), Minimums(clients=2), Ledger(), Clip(1.0)
        found = parts_of((asked, least, books, clip, "secure-sum"))
        assert (found.dp, found.minimums, found.ledger) == (asked, least, books)
        assert found.links == [clip, SecureSum()]
        assert parts_of("median").links == [Robust("median")]
        assert parts_of(["trimmed-mean"]).links == [Robust("trimmed-mean")]
        assert parts_of("group-median").links == [Robust("group-median")]

    @pytest.mark.parametrize("twice", [dp(1.0), Minimums(), Ledger()])
    def test_of_two_only_one_could_count(self, twice):
        with pytest.raises(IncompatibleError, match=f"holds two {type(twice).__name__}"):
            parts_of((twice, twice))

    def test_that_are_not_known(self):
        with pytest.raises(ValueError, match=r"privacy='odd' is not known\. Use 'secure-sum', 'median'"):
            parts_of("odd")
        with pytest.raises(IncompatibleError, match="privacy holds 3, which is no transform"):
            parts_of(3)
        with pytest.raises(ValueError, match="is not a minimum"):
            parts_of(("secure-sum", Minimums(allow=("odd",))))


class TestPlainPlans:
    def test_rounds_are_the_algorithms_own_unless_given(self, owners):
        plan = make_plan(Clip(1.0), PooledNMF(2), owners, None, simulation=True)
        assert plan.rounds == PooledNMF.default_rounds
        assert make_plan(Clip(1.0), PooledNMF(2), owners, 7, simulation=True).rounds == 7
        assert plan.federation is plan.original is owners
        assert plan.channel.about == {"withheld_columns": 0}
        assert plan.channel.simulation

    def test_small_owners_in_the_clear(self, owners):
        few = Federation({name: owners.shard(name).X[:2] for name in "abc"})
        with pytest.raises(RefusedError, match="no more rows than components"):
            make_plan(Clip(1.0), PooledNMF(2), few, 1, simulation=False)
        make_plan((Clip(1.0), Gaussian(1.0, 1.0, True, "local")), FedAvgNMF(2), few, 1, simulation=False)
        with pytest.raises(RefusedError, match="fewer than 100 rows"):
            make_plan("secure-sum", PooledNMF(2), few, 1, simulation=False)

    def test_rare_columns_are_withheld_under_a_secure_sum(self, owners):
        X = {name: owners.shard(name).X.copy() for name in "abc"}
        for name in "abc":
            X[name][:, 1] = 0
        X["a"][0, 1] = 1.0
        plan = make_plan("secure-sum", PooledNMF(2), Federation(X), 1, simulation=False)
        assert plan.channel.about["withheld_columns"] == 1
        assert plan.federation.shard("a").X[:, 1].sum() == 0
        assert plan.original.shard("a").X[:, 1].sum() == 1

    def test_links_decide_how_clients_count(self):
        assert for_links([Clip(1.0)], FedAvgNMF(2)).weights == "rows"
        assert for_links([Robust()], FedAvgNMF(2)).weights == "equal"
        noise = Gaussian(1.0, 1.0, True, "local")
        assert for_links([noise], FedAvgNMF(2)).weights == "equal"
        given = {"rows": "mean", "equal": "mean", "mean": "mean"}
        assert {word: for_links([noise], PooledNMF(2, weights=word)).weights for word in given} == given
        assert for_links([Robust()], PooledNMF(2)).weights == "equal"

    def test_without_noise_a_round_costs_without_bound(self):
        entry = entry_of([Clip(1.0)], FedAvgNMF(2), META, "r")
        assert (entry.run, entry.algorithm, entry.unit, entry.noise_multiplier) == ("r", "FedAvgNMF", "client", 0.0)
        noisy = entry_of([Clip(1.0), Gaussian(2.0, 1.0, True, "local")], FedAvgNMF(2), META, "r")
        assert (noisy.noise_multiplier, noisy.protects) == (2.0, True)

    def test_uploads_that_must_be_seen_one_by_one(self, owners):
        with pytest.raises(IncompatibleError, match=r"Robust hands the server only a combination, but FNMF must see"):
            make_plan(Robust(), FNMF(2), owners, 1, simulation=True)
        make_plan(SecureSum(gathered="clear"), FNMF(2), owners, 1, simulation=True)

    @pytest.mark.parametrize("privacy", [dp(1.0), (Clip(1.0), Ledger()), "secure-sum"])
    def test_what_processes_of_one_user_cannot_offer(self, privacy):
        with pytest.raises(IncompatibleError, match="each process holds its own owners only"):
            spread_plan(privacy, FedAvgNMF(2))

    def test_what_they_can(self):
        algorithm, made = spread_plan((Clip(1.0), Minimums(clients=7)), FedAvgNMF(2))
        channel = made(META)
        assert algorithm.weights == "rows"
        assert channel.links == (Clip(1.0),)
        assert channel.minimums.clients == 7
        assert not channel.simulation
        assert spread_plan(Robust(), FedAvgNMF(2))[0].weights == "equal"


class TestPrivatePlans:
    def test_rows_whose_bounds_are_public(self, owners):
        asked = dp(5.0, row_bound=2.0, rows=300, **Z)
        plan = make_plan(asked, PooledNMF(2), owners, None, simulation=True)
        assert plan.rounds == ROW_ROUNDS == 30
        assert (plan.algorithm.row_clip, plan.algorithm.row_count, plan.algorithm.tol) == (2.0, 300.0, 0.0)
        noise, secure = plan.channel.links
        assert noise.sensitivity == plan.algorithm.sensitivity(owners.prepare())[1]
        assert (noise.noise_multiplier, noise.whole, noise.share, noise.touched) == (3.0, False, "distributed", 1)
        assert secure == SecureSum(threshold=0.9, min_clients=3)
        assert plan.channel.about == {"survey_share": 0.0, "row_bound": 2.0, "rows": 300.0}
        entry = plan.channel.books.entry
        assert (entry.unit, entry.simulation, entry.algorithm, entry.round) == ("row", False, "PooledNMF", 0)

    def test_the_number_of_rounds_follows_from_public_numbers(self, owners):
        """Three clients, of whom one may collude: the noise of all is that of the accountant times the root of 3/2."""
        asked = dp(0.5, row_bound=2.0, rows=300, colluding=1)
        plan = make_plan(asked, PooledNMF(2), owners, None, simulation=True)
        once = calibrate(0.5, 1e-5) * math.sqrt(3 / 2)
        assert plan.rounds == useful_rounds(once, 300.0, 2, owners.n_features) < 30
        assert plan.channel.books.entry.noise_multiplier == calibrate(0.5, 1e-5, plan.rounds)
        gradient = PooledNMF(2, noisy_step="gradient")
        assert make_plan(asked, gradient, owners, None, simulation=True).rounds == ROW_ROUNDS
        assert make_plan(asked, PooledNMF(2), owners, 7, simulation=True).rounds == 7

    def test_clients(self, owners):
        asked = dp(5.0, unit="client", clip=0.5, noise_seed=0, **Z)
        plan = make_plan(asked, PooledNMF(2), owners, None, simulation=True)
        assert plan.rounds == CLIENT_ROUNDS == 10
        clip, noise, _ = plan.channel.links
        assert (clip.norm, noise.sensitivity, noise.whole) == (0.5, 0.5, True)
        assert plan.algorithm.start == "random"
        assert plan.channel.books.entry.simulation

    def test_local_noise_needs_no_secure_sum(self, owners):
        plan = make_plan(dp(5.0, noise="local", row_bound=2.0, rows=300, **Z), PooledNMF(2), owners, 2, simulation=True)
        assert [type(link).__name__ for link in plan.channel.links] == ["Gaussian"]

    def test_subjects_count_up_to_their_cap(self, owners):
        asked = dp(5.0, unit="subject", subject={n: np.zeros(100) for n in "abc"}, cap=2, known_to=3, row_bound=1.0,
                   rows=9, **Z)  # fmt: skip
        plan = make_plan(asked, PooledNMF(2), owners, 2, simulation=True)
        noise = plan.channel.links[0]
        size = plan.algorithm.sensitivity(owners.prepare())[1]
        assert (noise.sensitivity, noise.touched) == (6 * size, 3)
        assert [(plan.federation.shard(n).X.sum(1) > 0).sum() for n in "abc"] == [2, 2, 2]
        assert plan.original is owners

    def test_other_links_that_bound_or_add_noise_are_refused(self, owners):
        for link in (Clip(1.0), Robust()):
            with pytest.raises(IncompatibleError, match="brings its own bounds and noise"):
                make_plan((dp(5.0, **Z), link), PooledNMF(2), owners, 1, simulation=True)
        asked = dp(5.0, row_bound=2.0, rows=300, **Z)
        plan = make_plan((Transform(), asked), PooledNMF(2), owners, 1, simulation=True)
        assert type(plan.channel.links[0]) is Transform

    def test_books_of_the_run_of_the_user_and_of_the_data_set(self, owners, tmp_path):
        own, other = Ledger(tmp_path / "own"), tmp_path / "other"
        asked = dp(5.0, 1e-6, row_bound=2.0, rows=300, ledger=other, accountant="pld", **Z)
        plan = make_plan((asked, own), PooledNMF(2), owners, 2, simulation=True, folder=tmp_path / "run")
        first, second, third = plan.channel.books.ledgers
        assert first.path == tmp_path / "run" / "ledger.jsonl"
        assert second is own
        assert third.path == other
        assert (first.budget, first.delta, third.budget, third.accountant) == (5.0, 1e-6, 5.0, "pld")
        assert first.rows == own.rows == third.rows != ""
        again = make_plan(replace(asked, epsilon=9.0), PooledNMF(2), owners, 2, simulation=True)
        assert again.channel.books.ledgers[1].budget == 5.0  # the file's own holds
        given = Ledger()
        plan = make_plan(replace(asked, ledger=given), PooledNMF(2), owners, 2, simulation=True)
        assert plan.channel.books.ledgers[1] is given

    def test_a_survey_is_paid_for_and_kept(self, owners, tmp_path):
        asked = dp(50.0, noise_multiplier=2.0, noise_seed=0, row_bound=7.0)
        plan = make_plan(asked, PooledNMF(2), owners, 5, simulation=True, folder=tmp_path)
        rows, bound = json.loads((tmp_path / "survey.json").read_text())
        assert plan.algorithm.row_clip == 7.0
        assert plan.algorithm.row_count == rows == pytest.approx(300, abs=40)
        lengths = np.linalg.norm(np.vstack([owners.shard(name).X for name in "abc"]), axis=1)
        assert bound == pytest.approx(np.quantile(lengths, 0.9), rel=0.25)
        survey = plan.channel.books.ledgers[0].entries()[0]
        assert (survey.round, survey.what, survey.sampling) == (-1, "survey", 1.0)
        assert survey.noise_multiplier == pytest.approx(2.0 * math.sqrt(0.95 / (0.05 * 5)))
        assert plan.channel.about["survey_share"] == 0.05
        (tmp_path / "survey.json").write_text("[11, 3]")
        again = make_plan(asked, PooledNMF(2), owners, 5, simulation=True, folder=tmp_path)
        assert again.algorithm.row_count == 11

    def test_the_noise_of_a_survey_hides_all_rows_of_a_subject(self, owners, monkeypatch):
        """Each of its rows, at each of its owners, adds one to the count and one to a bin."""
        asked_with = []

        def survey(federation, noise, *more):
            asked_with.append(noise)
            return 300.0, 2.0

        monkeypatch.setattr("fedfactor.privacy.planner.row_survey", survey)
        ids = {name: np.arange(100) for name in "abc"}
        asked = dp(5.0, unit="subject", subject=ids, cap=5, known_to=3, noise_seed=0, **Z)
        make_plan(asked, PooledNMF(2), owners, 2, simulation=True)
        (noise,) = asked_with
        assert noise.sensitivity == pytest.approx(math.sqrt(2) * 5 * 3)
        assert noise.touched == 3

    def test_a_delta_above_one_in_rows_is_warned_of(self, owners):
        with pytest.warns(PrivacyWarning, match=r"more than one over the number of rows \(about 300\)"):
            make_plan(dp(5.0, 1 / 299, row_bound=2.0, rows=300, **Z), PooledNMF(2), owners, 2, simulation=True)
        make_plan(dp(5.0, 1 / 300, row_bound=2.0, rows=300, **Z), PooledNMF(2), owners, 2, simulation=True)

    def test_noise_of_newton_steps_is_that_of_all_clients(self, owners):
        asked = dp(5.0, row_bound=2.0, rows=300, colluding=1, **Z)
        given = PooledNMF(2)
        plan = make_plan(asked, given, owners, 2, simulation=True)
        assert plan.algorithm.row_noise == pytest.approx(3.0 * math.sqrt(3 / 2))
        local = make_plan(dp(5.0, row_bound=2.0, rows=300, noise="local", **Z), given, owners, 2, simulation=True)
        assert local.algorithm.row_noise == pytest.approx(3.0 * math.sqrt(3))

    def test_methods_that_noise_cannot_protect(self):
        with pytest.raises(IncompatibleError, match="FNMF has no bound on what one row can change"):
            check_bears(dp(5.0), FNMF(2), META)
        with pytest.raises(IncompatibleError, match="sums of Newton steps alone"):
            check_bears(dp(5.0), PooledNMF(2, noisy_step="gradient"), replace(META, masked=True))
        check_bears(dp(5.0, unit="client", clip=1.0), FedAvgNMF(2), replace(META, masked=True))
        with pytest.raises(IncompatibleError, match="start='wide' folds exact sums"):
            alike_for_noise(PooledNMF(2, start="wide"), META)
        assert alike_for_noise(PooledNMF(2, start="random"), META).start == "random"

    def test_a_bound_on_rows_fixes_the_end(self):
        algorithm, size = bound_rows(PooledNMF(2, tol=1e-3), META, 2.0, 50.0, 1.5)
        assert (algorithm.row_clip, algorithm.row_count, algorithm.tol) == (2.0, 50.0, 0.0)
        assert size == algorithm.sensitivity(META)[1]

    def test_links_of_a_budget(self):
        (row,) = noise_links(dp(5.0), 2.0, 5.0, 3, META)
        assert (row.noise_multiplier, row.sensitivity, row.honest, row.touched) == (2.0, 5.0, 3, 1)
        asked = dp(5.0, unit="subject", subject="who", cap=2, known_to=9)
        (subject,) = noise_links(asked, 2.0, 5.0, 3, META)
        assert (subject.sensitivity, subject.touched) == (90.0, 3)
        clip, client = noise_links(dp(5.0, unit="client", clip=4.0, sampling=0.5), 2.0, 5.0, 3, META)
        assert (clip.norm, client.sensitivity, client.sampling) == (4.0, 4.0, 0.5)


class TestWhoseNoiseCounts:
    def asked(self, secure=None, minimums=None, clients=5, **options):
        meta = Meta(4, tuple("abcdefghij"[:clients]))
        return secure_for_noise(dp(1.0, **options), secure, minimums or Minimums(), FedAvgNMF(2), meta)

    def test_shares_of_those_who_must_be_there_and_do_not_collude(self):
        assert self.asked() == (SecureSum(threshold=0.9, min_clients=5), 5)
        assert self.asked(clients=10) == (SecureSum(threshold=0.9, min_clients=9), 9)
        assert self.asked(colluding=2) == (SecureSum(threshold=0.9, min_clients=5), 3)
        assert self.asked(minimums=Minimums(coordinator_is_client=True))[1] == 4
        assert self.asked(SecureSum(threshold=0.6))[1] == 3
        assert self.asked(noise="local") == (None, 1)

    def test_what_leaves_nobody(self):
        with pytest.raises(IncompatibleError, match="excludes secure aggregation"):
            self.asked(SecureSum(), noise="local")
        with pytest.raises(IncompatibleError, match=r"which 2 client\(s\) cannot make"):
            self.asked(clients=2)
        self.asked(clients=3, colluding=1)
        for colluding in (2, 3):
            with pytest.raises(IncompatibleError, match=f"With {colluding} colluding clients of 3"):
                self.asked(clients=3, colluding=colluding)


class TestAgreedNoise:
    @pytest.mark.parametrize(("z", "up"), [(1.23451, 1.235), (1.234, 1.234), (0.012341, 0.01235), (9.9999, 10.0)])
    def test_rounded_up_to_four_digits(self, z, up):
        assert _rounded_up(z) == up

    def test_the_whole_cohort_is_in_the_sum(self):
        assert whole_cohort(4) == SecureSum(min_clients=4, threshold=1.0)

    def test_rows(self):
        given = {"epsilon": 2.0, "row_bound": 2.0, "rows": 300, "noise_multiplier": 1.23456}
        algorithm, noise = agree_on_noise(given, PooledNMF(2), META, 5)
        assert noise == {**given, "noise_multiplier": 1.235}
        assert (algorithm.row_clip, algorithm.row_count) == (2.0, 300.0)
        channel = noisy_channel(noise, algorithm, META, "run")
        gaussian, secure = channel.links
        assert gaussian.sensitivity == algorithm.sensitivity(META)[1]
        assert secure == SecureSum(min_clients=3, threshold=1.0)
        assert channel.about == {"row_bound": 2.0, "rows": 300}
        assert not channel.simulation
        assert (channel.books.ledgers, channel.books.entry.noise_multiplier) == ([], 1.235)
        with pytest.raises(IncompatibleError, match="needs row_bound and rows"):
            agree_on_noise({"epsilon": 2.0, "row_bound": 2.0, "noise_multiplier": 1.0}, PooledNMF(2), META, 5)

    def test_clients(self):
        given = {"epsilon": 2.0, "unit": "client", "clip": 1.0, "noise_multiplier": 2.0}
        algorithm, noise = agree_on_noise(given, FedAvgNMF(2), META, 5)
        assert algorithm.weights == "equal"
        channel = noisy_channel(noise, algorithm, META, "run")
        assert [type(link) for link in channel.links] == [Clip, Gaussian, SecureSum]
        assert channel.about == {}
        assert channel.books.entry.unit == "client"


def test_a_summary_of_a_private_run_says_what_it_cost(owners):
    asked = dp(5.0, row_bound=2.0, rows=300, noise_seed=0, **Z)
    plan = make_plan(asked, PooledNMF(2), owners, 2, simulation=True)
    for index in range(2):
        plan.channel.books.debit(index)
    told = plan.channel.report(2)
    assert (told["mode"], told["noise_multiplier"], told["unit"], told["delta"]) == ("dp", 3.0, "row", 1e-5)
    assert told["epsilon"] == pytest.approx(plan.channel.books.ledgers[0].epsilon(as_if=True))
    assert told["epsilon_tight"] < told["epsilon"] < 5
    assert told["void"]
    assert told["noise_is"] == "distributed"
    assert "data_set_epsilon" not in told
    assert told["simulation"][1].startswith("noise was drawn from a seed")
