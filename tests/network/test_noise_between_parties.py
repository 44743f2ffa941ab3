"""Noise between parties: drawn where the rows are, kept, paid for once, and refused when the rows' budget is spent."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest

import fedfactor
from fedfactor import algorithms
from fedfactor.core.algorithm import Round
from fedfactor.core.checksummed_files import read_checked
from fedfactor.core.entropy import Entropy
from fedfactor.core.flattened_upload import Parcel, flatten
from fedfactor.core.transforms import Site
from fedfactor.core.wire import from_bytes
from fedfactor.engines import client_step as client
from fedfactor.network.client import REFUSAL, RemoteClient
from fedfactor.network.client_storage import ClientFolder
from fedfactor.network.exchange import Arrival, NotEnough
from fedfactor.network.message_format import read_head, seal
from fedfactor.network.verified_messages import Masked, Tagged
from fedfactor.privacy.agreed_noise import agree_on_noise
from fedfactor.privacy.ledger import Ledger
from fedfactor.privacy.secure_aggregation.transform import SecureSum
from tests.network.in_process import Office

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")
rng = np.random.default_rng(0)
X = rng.gamma(0.5, 1.0, (360, 4)) @ rng.gamma(0.6, 1.0, (4, 12))
OWNERS = {"north": X[:100], "south": X[100:220], "west": X[220:]}
ROWS = {"epsilon": 1.0, "delta": 1e-5, "unit": "row", "row_bound": 10.0, "rows": 360.0, "colluding": 1}
ALGORITHM = algorithms.PooledNMF(3)


def office(folder, noise=ROWS, rounds=3, algorithm=ALGORITHM, owners=OWNERS, **more):
    whole = owners if isinstance(owners, fedfactor.Federation) else fedfactor.Federation(owners)
    meta = replace(whole.prepare(algorithm.domain), n_rows=None)
    made, agreed = agree_on_noise(noise, algorithm, meta, rounds)
    return Office(folder, made, owners, rounds=rounds, protect="dp", noise=agreed, report_score=False, **more)


def seeded(monkeypatch):
    """Draw the parties' noise as a simulation with noise_seed=7 does."""
    monkeypatch.setattr(Site, "entropy", lambda site, what: Entropy.seeded(7, site.name, site.at.index, what))


def simulated(made, noise=ROWS, **more):
    """Run the same on one machine, with the same noise."""
    asked = fedfactor.dp(
        **{**noise, **more, "noise_multiplier": made.agreement.noise["noise_multiplier"]}, noise_seed=7
    )
    return fedfactor.run(
        ALGORITHM, OWNERS, rounds=3, seed=5, privacy=(asked, SecureSum(3, 1.0)), engine=fedfactor.LocalEngine(workers=2)
    )


def ledger(folder, name):
    return ClientFolder(folder / name).ledger


def reasons(folder, name):
    return " ".join(line.get("reason", "") for line in ClientFolder(folder / name).sent())


def test_with_the_same_noise_the_bits_are_those_of_the_simulation(tmp_path, monkeypatch):
    seeded(monkeypatch)
    made = office(tmp_path)
    outcome = made.server(dropouts="wait").run()
    assert not outcome.rejected
    run = simulated(made)
    for name in OWNERS:
        np.testing.assert_array_equal(made.factors(name).V, run.factors[name].V)
    assert outcome.privacy["mode"] == "dp"
    assert outcome.privacy["epsilon"] == pytest.approx(1.0, rel=1e-3)


@pytest.mark.slow
def test_nothing_but_masked_words_leaves_a_party_and_columns_are_not_counted(tmp_path):
    made = office(tmp_path)
    answers = []
    made.post.tamper = lambda name, answer: answers.append(answer) or [Arrival(name, answer)]
    made.server(dropouts="wait").run()
    kinds = {type(from_bytes(answer)).__name__ for answer in answers}
    assert kinds == {"Key", "Masked", "Tagged", "Ask"}


@pytest.mark.slow
def test_each_party_pays_from_its_own_books_and_refuses_a_second_run(tmp_path):
    made = office(tmp_path)
    made.server(dropouts="wait").run()
    for name in OWNERS:
        books = ledger(tmp_path, name)
        assert books.rows == ClientFolder(tmp_path / name).rows
        assert [entry.round for entry in books.entries()] == [0, 1, 2]
        assert 0.99 < books.epsilon() <= 1.0 == books.budget
    (tmp_path / "server" / "run").write_text("another")
    for part in ("checkpoint", "result"):
        for file in (tmp_path / "server" / part).rglob("*"):
            file.unlink()
    with pytest.raises(NotEnough, match=REFUSAL):
        made.server(dropouts="wait").run()
    assert "beyond their budget" in reasons(tmp_path, "north")
    assert ledger(tmp_path, "north").epsilon() <= 1.0


@pytest.mark.slow
def test_a_party_lost_in_the_middle_of_a_sum_sends_the_same_bytes_and_pays_once(tmp_path, monkeypatch):
    seeded(monkeypatch)
    made = office(tmp_path)
    lost, parcels = [], []

    def tamper(name, answer):
        head = read_head(answer)
        phase = type(from_bytes(answer)) if head.kind != "refusal" else None
        if name == "south" and head.index == 1 and phase in (Masked, Tagged) and phase not in lost:
            lost.append(phase)
            monkeypatch.setattr(Site, "entropy", lambda site, what: Entropy())  # a second draw would be another one
            parcels.append(ClientFolder(tmp_path / "south").load().protocol["open"]["words"])
            made.clerks["south"] = RemoteClient(ClientFolder(tmp_path / "south"))
            made.post.here["south"] = str(len(lost) + 1)
            return []
        if head.index == 2:
            seeded(monkeypatch)
        return [Arrival(name, answer)]

    made.post.tamper = tamper
    made.server(dropouts="wait").run()
    assert len(lost) == 2
    assert all(np.array_equal(parcel, parcels[0]) for parcel in parcels)
    assert [entry.round for entry in ledger(tmp_path, "south").entries()] == [0, 1, 2]
    assert ledger(tmp_path, "south").epsilon() <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("when", [2, 5, 12, 17, 23])
def test_a_server_that_was_killed_goes_on_with_the_same_noise(tmp_path, monkeypatch, when):
    seeded(monkeypatch)
    made = office(tmp_path)
    made.run_with_a_server_killed_at(when)
    np.testing.assert_array_equal(made.factors("west").V, simulated(made).factors["west"].V)
    for name in OWNERS:
        assert len(ledger(tmp_path, name).entries()) == 3


@pytest.mark.slow
def test_without_one_party_there_is_no_sum_and_nothing_is_opened(tmp_path):
    """Its noise would be missing: the others wait, and what they have paid for they send when it is back."""
    made = office(tmp_path)
    away = []

    def tamper(name, answer):
        if name == "west" and read_head(answer).index == 1 and read_head(answer).kind == "sum" and not away:
            away.append(name)
        return [] if name in away else [Arrival(name, answer)]

    made.post.tamper = tamper
    answers = []
    with pytest.raises(NotEnough, match="west"):
        made.server(dropouts="wait").run()
    made.post.tamper = lambda name, answer: answers.append(answer) or [Arrival(name, answer)]
    outcome = made.server(dropouts="wait").run()
    assert len(outcome.history) == 3
    assert [entry.round for entry in ledger(tmp_path, "north").entries()] == [0, 1, 2]


@pytest.mark.slow
def test_a_server_that_goes_back_to_an_earlier_run_hears_the_same_noise_or_nothing(tmp_path):
    """Runs in turn made the party forget what it had sent: a second draw under one entry would be half unpaid."""
    made = office(tmp_path)
    made.server(dropouts="wait").run()
    for name in OWNERS:
        ledger(tmp_path, name).raise_budget(10.0)
    first = [data for name, data in made.post.messages if name == "north"]
    shutil.rmtree(tmp_path / "server")
    made.clerks.update({name: RemoteClient(ClientFolder(tmp_path / name)) for name in OWNERS})
    made.run_with_a_server_killed_at(len(made.post.messages) + 8)
    entries = len(ledger(tmp_path, "north").entries())
    clerk = made.clerks["north"]
    for data in first:
        assert read_head(clerk.answer(data)).reason == REFUSAL
    assert len(ledger(tmp_path, "north").entries()) == entries == 3 + 3


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["noise", "noise/*/outbox/00*"])
def test_where_what_was_sent_is_gone_noise_is_not_drawn_again(tmp_path, gone):
    """The ledger has the run: a second draw for one of its rounds would go unpaid."""
    made = office(tmp_path)
    made.post.tamper = lambda name, answer: [] if read_head(answer).kind == "sum" else [Arrival(name, answer)]
    with pytest.raises(NotEnough):
        made.server(dropouts="wait").run()
    for path in (tmp_path / "north").glob(gone):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (tmp_path / "north" / "state.safetensors").unlink()
    made.clerks["north"] = RemoteClient(ClientFolder(tmp_path / "north"))
    made.post.tamper = None
    with pytest.raises(NotEnough, match=REFUSAL):
        made.server(dropouts="wait").run()
    assert "is gone or was never made" in reasons(tmp_path, "north")
    assert len(ledger(tmp_path, "north").entries()) == 1


@pytest.mark.slow
def test_a_sum_of_fewer_and_a_round_beyond_the_last_are_refused(tmp_path):
    made = office(tmp_path)
    made.server(dropouts="wait").run()
    step = next(data for name, data in made.post.messages if name == "north" and read_head(data).kind == "step")
    for change in ({"participants": ("north", "south")}, {"index": 3}):
        head = replace(read_head(step), run="another", **change)
        assert read_head(made.clerks["north"].answer(seal(head, from_bytes(step)))).kind == "refusal"
    assert "others than those who were agreed on" in reasons(tmp_path, "north")
    assert "3 was asked for, but 3 were agreed" in reasons(tmp_path, "north")


@pytest.mark.slow
def test_books_of_other_rows_are_refused(tmp_path):
    made = office(tmp_path)
    path = tmp_path / "elsewhere.jsonl"
    Ledger(path, epsilon=5.0, unit="row").belong("other rows")
    (tmp_path / "north" / "ledger.path").write_text(str(path))
    made.clerks["north"] = RemoteClient(ClientFolder(tmp_path / "north"))
    with pytest.raises(NotEnough, match=REFUSAL):
        made.server(dropouts="wait").run()
    assert "books of other rows" in reasons(tmp_path, "north")


@pytest.mark.slow
def test_sums_without_noise_are_beyond_any_budget(tmp_path):
    made = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, protect="secure-sum", report_score=False)
    Ledger(tmp_path / "north" / "ledger.jsonl", epsilon=5.0, unit="row").belong(ClientFolder(tmp_path / "north").rows)
    made.clerks["north"] = RemoteClient(ClientFolder(tmp_path / "north"))
    with pytest.raises(NotEnough, match=REFUSAL):
        made.server(dropouts="wait").run()
    assert "beyond their budget" in reasons(tmp_path, "north")


@pytest.mark.slow
def test_the_noise_of_all_parties_but_the_colluding_ones_makes_up_the_whole(tmp_path):
    """Each party's share has the variance of the whole over the number of those who do not collude."""
    made = office(tmp_path, rounds=1)
    made.server(dropouts="wait").run()
    noise = made.clerks["north"].channel.links[0]
    at, shares = Round(5, 0, "north", tuple(OWNERS)), []
    for name, clerk in made.clerks.items():
        _, down = clerk.algorithm.init_server(clerk.agreement.meta, at)
        state = client.begin(clerk.algorithm, clerk.shard, clerk.agreement.meta, 5, name)
        up = client.step(clerk.algorithm, clerk.shard, state, down, replace(at, client=name))[1]
        parcel = Parcel.of(read_kept(tmp_path / name))
        shares.append(parcel.floats - flatten(up, noisy=True)[0].values)
    whole = noise.noise_multiplier * noise.sensitivity
    assert np.std(shares) == pytest.approx(whole / np.sqrt(2), rel=0.25)  # 108 numbers: five standard errors
    assert noise.honest == 2


def read_kept(folder):
    (file,) = (folder / "noise").glob("*/outbox/000000-*.safetensors")
    return from_bytes(read_checked(file))


CLIENTS = {"epsilon": 1.0, "delta": 1e-5, "unit": "client", "clip": 1.0, "colluding": 1}
ONES = {name: (rows > np.median(X)).astype(float) for name, rows in OWNERS.items()}
COUNTS = {name: np.rint(rows) for name, rows in OWNERS.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "noise", "owners"),
    [
        (algorithms.PooledNMF(3), CLIENTS, OWNERS),
        (algorithms.PooledNMF(3, loss="kullback-leibler"), CLIENTS, COUNTS),
        (algorithms.PooledNMF(3, loss="itakura-saito"), CLIENTS, OWNERS),
        (algorithms.PooledBMF(3, solver="proximal"), ROWS, ONES),
        (algorithms.PooledCF(3), CLIENTS, COUNTS),
    ],
)
def test_what_is_offered_with_noise_runs_to_its_end(tmp_path, algorithm, noise, owners):
    made = office(tmp_path, noise, 2, algorithm, owners)
    outcome = made.server(dropouts="wait").run()
    assert not outcome.rejected
    assert outcome.privacy["epsilon"] == pytest.approx(1.0, rel=1e-3)
    assert ledger(tmp_path, "north").epsilon() == pytest.approx(1.0, rel=1e-3)
    assert np.isfinite(made.factors("north").V).all()


@pytest.mark.slow
def test_two_federations_with_one_ledger_and_one_run_name_pay_twice(tmp_path):
    """The coordinator names runs: where names collided, one payment stood for two releases with different noise."""
    shared = tmp_path / "ledger.jsonl"
    for place in ("one", "two"):
        made = office(tmp_path / place)
        (tmp_path / place / "north" / "ledger.path").write_text(str(shared))
        if place == "one":
            Ledger(shared, epsilon=5.0, delta=1e-5, unit="row").belong(ClientFolder(tmp_path / place / "north").rows)
        made.clerks["north"] = RemoteClient(ClientFolder(tmp_path / place / "north"))
        (tmp_path / place / "server").mkdir()
        (tmp_path / place / "server" / "run").write_text("5a" * 8)
        made.server(dropouts="wait").run()
    entries = Ledger(shared).entries()
    assert {entry.run for entry in entries} == {"5a" * 8}
    assert len(entries) == 6
    assert Ledger(shared).epsilon() > 1.3
