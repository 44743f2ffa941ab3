from __future__ import annotations

import errno
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import fedfactor
from fedfactor import algorithms
from fedfactor.core.algorithm import Round
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import CheckpointError
from fedfactor.core.pytree import freeze, leaves
from fedfactor.core.wire import from_bytes
from fedfactor.engines import client_step as client
from fedfactor.network import server
from fedfactor.network.client import REFUSAL, RemoteClient
from fedfactor.network.client_storage import REFUSALS, ClientFolder
from fedfactor.network.exchange import Arrival, NotEnough
from fedfactor.network.message_format import Head, read_head, seal
from fedfactor.network.server import ABANDON, REMOVED, AbandonedError
from tests.network.in_process import TERMS, Office

rng = np.random.default_rng(0)
X = rng.gamma(0.5, 1.0, (70, 4)) @ rng.gamma(0.6, 1.0, (4, 12))
OWNERS = {"north": X[:20], "south": X[20:40], "west": X[40:]}
BITS = {name: (rows > np.median(X)).astype(float) for name, rows in OWNERS.items()}


def local(algorithm, owners, rounds):
    return fedfactor.run(algorithm, owners, rounds=rounds, seed=5, engine=fedfactor.LocalEngine(workers=2))


def assert_same_bits(office, run):
    for name in office.clerks:
        mine, reference = dict(leaves(office.factors(name))), dict(leaves(run.factors[name]))
        assert mine.keys() == reference.keys()
        for path, leaf in mine.items():
            np.testing.assert_array_equal(leaf, reference[path], err_msg=f"{name} {path}")


CASES = {
    "PooledNMF": (algorithms.PooledNMF(3, tol=0.0), OWNERS),
    "FNMF": (algorithms.FNMF(3), OWNERS),
    "FedAvgNMF": (algorithms.FedAvgNMF(3), OWNERS),
    "FELB": (algorithms.FELB(3), BITS),
    "BooleanVotes": (algorithms.BooleanVotes(3), BITS),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_messages_give_the_bits_of_the_local_engine(tmp_path, name):
    algorithm, owners = CASES[name]
    office = Office(tmp_path, algorithm, owners, rounds=4)
    outcome = office.server().run()
    run = local(algorithm, owners, 4)
    assert_same_bits(office, run)
    assert outcome.status == run.status
    assert [r.participants for r in outcome.history] == [r.participants for r in run.history]
    assert not outcome.rejected
    assert {name: s.relative_error for name, s in outcome.scores.items()} == {
        name: s.relative_error for name, s in run.scores.items()
    }


@pytest.mark.slow
def test_sparse_and_masked_rows_travel_through_the_disk(tmp_path):
    from scipy.sparse import csr_array

    holes = {
        name: np.where(np.arange(rows.size).reshape(rows.shape) % 7 == 0, np.nan, rows) for name, rows in OWNERS.items()
    }
    for folder, owners, missing in (
        ("sparse", {n: csr_array(r * (r > 1)) for n, r in OWNERS.items()}, None),
        ("holes", holes, np.nan),
    ):
        federation = fedfactor.Federation(owners, missing_values=missing)
        algorithm = algorithms.PooledNMF(3, tol=0.0)
        federation.prepare()
        office = Office(tmp_path / folder, algorithm, {n: federation.shard(n) for n in federation.names}, rounds=3)
        office.server().run()
        run = local(algorithm, fedfactor.Federation(owners, missing_values=missing), 3)
        assert_same_bits(office, run)


class Killed(BaseException):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("when", range(1, 8))
def test_a_server_killed_at_any_message_goes_on_with_the_same_bits(tmp_path, when):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=3)

    def tamper(name, answer):
        if len(office.post.messages) == 2 * when:
            raise Killed
        return [Arrival(name, answer)]

    office.post.tamper = tamper
    try:
        office.server().run()
    except Killed:
        office.post.tamper, office.post.box = None, []
        office.server().run()
    assert_same_bits(office, local(algorithms.PooledNMF(3, tol=0.0), OWNERS, 3))


@pytest.mark.slow
def test_a_client_killed_between_state_and_answer_takes_no_step_twice(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=3)
    lost = []

    def tamper(name, answer):
        head = read_head(answer)
        if name == "south" and head.index == 1 and not lost:
            lost.append(answer)  # the process died after it had kept its state; a new one opens the folder
            office.clerks["south"] = RemoteClient(ClientFolder(tmp_path / "south"))
            office.post.here["south"] = "2"
            return []
        return [Arrival(name, answer)]

    office.post.tamper = tamper
    outcome = office.server().run()
    assert_same_bits(office, local(algorithms.PooledNMF(3, tol=0.0), OWNERS, 3))
    assert len(outcome.history) == 3
    again = [line for line in ClientFolder(tmp_path / "south").sent() if line["again"]]
    assert [line["index"] for line in again] == [1]


@pytest.mark.slow
def test_a_round_ends_at_its_deadline_and_goes_on_with_those_who_are_there(tmp_path):
    algorithm = algorithms.PooledNMF(3, tol=0.0)
    office = Office(tmp_path, algorithm, OWNERS, rounds=3)

    def tamper(name, answer):
        head = read_head(answer)
        if (name, head.index) == ("west", 0):
            del office.post.here["west"]
        if office.clock.now > 55.0:
            office.post.here["west"] = "2"
        return [Arrival(name, answer)]

    office.post.tamper = tamper
    outcome = office.server(minimum=2).run()
    assert [len(r.participants) for r in outcome.history] == [3, 2, 3]
    assert 60.0 <= office.clock.now <= 66.0
    away = fedfactor.run(
        algorithm, OWNERS, rounds=3, seed=5, engine=fedfactor.LocalEngine(workers=2),
        participation=lambda at, names: [n for n in names if not (n == "west" and at.index == 1)],
    )  # fmt: skip
    assert_same_bits(office, away)


@pytest.mark.slow
def test_an_answer_that_came_too_late_never_happened(tmp_path):
    algorithm = algorithms.PooledNMF(3, tol=0.0)
    office = Office(tmp_path, algorithm, OWNERS, rounds=4)
    late = ("west", "step", 1)
    office.post.tamper = lambda name, answer: (
        [] if (name, read_head(answer).kind, read_head(answer).index) == late else [Arrival(name, answer)]
    )
    outcome = office.server(minimum=2).run()
    assert [len(r.participants) for r in outcome.history] == [3, 2, 3, 3]
    away = fedfactor.run(
        algorithm, OWNERS, rounds=4, seed=5, engine=fedfactor.LocalEngine(workers=2),
        participation=lambda at, names: [n for n in names if not (n == "west" and at.index == 1)],
    )  # fmt: skip
    assert_same_bits(office, away)


@pytest.mark.slow
def test_with_a_fixed_cohort_a_drop_out_pauses_the_run_and_it_goes_on_later(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=3)
    office.post.tamper = lambda name, answer: (
        [] if name == "west" and read_head(answer).index == 1 else [Arrival(name, answer)]
    )
    with pytest.raises(NotEnough, match="all 3 are needed"):
        office.server(minimum=2, dropouts="wait").run()
    assert json.loads((tmp_path / "server" / "status.json").read_bytes())["state"] == "paused"
    office.post.tamper = None
    office.server(minimum=2, dropouts="wait").run()
    assert_same_bits(office, local(algorithms.PooledNMF(3, tol=0.0), OWNERS, 3))


def status_in(folder):
    return json.loads((folder / "server" / "status.json").read_bytes())


@pytest.mark.parametrize("protect", ["none", "secure-sum"])
def test_a_paused_run_can_be_ended_and_keeps_what_was_reached(tmp_path, protect):
    """All parties refuse round 2, as they do beyond a limit; the two rounds before it are kept."""
    more = {"protect": protect, "least": (0, 0)} if protect != "none" else {}
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=4, **more)

    def tamper(name, answer):
        head = read_head(answer)
        if (head.kind, head.index) != ("step", 2):
            return [Arrival(name, answer)]
        return [Arrival(name, seal(replace(head, kind="refusal", reason=REFUSAL)))]

    office.post.tamper = tamper
    with pytest.raises(NotEnough, match=r"north, south, west refuse to answer.*fedfactor stop"):
        office.server(dropouts="wait").run()
    about = status_in(tmp_path)
    assert (about["state"], about["refusing"], about["unavailable"]) == ("paused", ["north", "south", "west"], [])
    del office.post.here["west"]  # and one has left meanwhile: it takes its factors home when it is back
    (tmp_path / "server" / "stop").touch()
    outcome = office.server(dropouts="wait").run()
    assert (outcome.status, len(outcome.history)) == ("stopped", 2)
    assert status_in(tmp_path)["state"] == "finished"
    record = json.loads((tmp_path / "server" / "result" / "run.json").read_bytes())
    assert record["rounds"] == 2
    reached = local(algorithms.PooledNMF(3, tol=0.0), OWNERS, 2)
    kept = from_bytes((tmp_path / "server" / "result" / "down.safetensors").read_bytes())["down"]
    np.testing.assert_allclose(kept.V, reached.V, rtol=1e-4 if more else 1e-12)


def test_a_party_that_is_unavailable_is_told_apart_from_one_that_refuses(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=3)

    def tamper(name, answer):
        head = read_head(answer)
        if head.index != 1 or name == "south":
            return [Arrival(name, answer)]
        return [] if name == "west" else [Arrival(name, seal(replace(head, kind="refusal", reason=REFUSAL)))]

    office.post.tamper = tamper
    with pytest.raises(NotEnough, match=r"north refuses to answer, and starting again.*again when west is connected"):
        office.server(dropouts="wait").run()
    about = status_in(tmp_path)
    assert (about["refusing"], about["unavailable"]) == (["north"], ["west"])


def test_too_few_at_the_start_is_said_with_their_names(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(3), OWNERS)
    del office.post.here["south"]
    with pytest.raises(NotEnough, match="missing: south"):
        office.server().run()


@pytest.mark.slow
def test_a_late_joiner_takes_part_from_its_first_round(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=4)
    del office.post.here["west"]
    office.post.tamper = lambda name, answer: (
        (office.post.here.__setitem__("west", "1") if read_head(answer).index == 1 else None) or [Arrival(name, answer)]
    )
    outcome = office.server(minimum=2, deadline=30.0).run()
    assert [r.participants[-1] for r in outcome.history] == ["south", "west", "west", "west"]
    assert outcome.finished == ("north", "south", "west")


def test_a_client_refuses_other_terms_another_name_and_a_stale_round(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=3)
    office.server().run()
    clerk = office.clerks["north"]
    name, message = office.post.messages[0]
    head = read_head(message)
    assert name == "north"
    for change, said in (
        ({"terms": "0" * 64}, "not the one this party signed up for"),
        ({"client": "south"}, "the message is for 'south'"),
        ({"index": 99}, "3 were agreed"),
        ({}, "is stale"),
    ):
        answer = read_head(clerk.answer(seal(replace(head, **change))))
        assert (answer.kind, answer.reason) == ("refusal", REFUSAL)
        assert said in ClientFolder(tmp_path / "north").sent()[-1]["reason"]  # at home, and only there
    assert read_head(clerk.answer(b"nonsense")).kind == "refusal"
    assert read_head(clerk.answer(b"\0" * (1 << 21))).kind == "refusal"


def test_a_server_with_other_terms_hears_at_once_that_nobody_takes_part(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=3)
    office.agreement = replace(office.agreement, terms="0" * 64)
    with pytest.raises(NotEnough, match=REFUSAL):
        office.server().run()
    assert office.clock.now < 10  # and not at the deadline


def test_a_refusal_that_speaks_of_rows_stays_at_home(tmp_path, monkeypatch):
    office = Office(tmp_path, algorithms.PooledNMF(3), OWNERS)
    secret = "patient 17 has 3.25"

    def broken(*_):
        raise RuntimeError(secret)

    monkeypatch.setattr("fedfactor.engines.client_step.step", broken)
    with pytest.raises(NotEnough) as caught:
        office.server().run()
    assert secret not in str(caught.value)
    assert REFUSAL in str(caught.value)
    assert secret in ClientFolder(tmp_path / "north").sent()[-1]["reason"]


def test_all_that_is_sent_is_logged_before_it_leaves(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=2)
    answers = []
    office.post.tamper = lambda name, answer: answers.append((name, answer)) or [Arrival(name, answer)]
    office.server().run()
    for name in OWNERS:
        sent = ClientFolder(tmp_path / name).sent()
        kept = [(tmp_path / name / "sent" / f"{line['sha256']}.safetensors").read_bytes() for line in sent]
        assert kept == [answer for owner, answer in answers if owner == name]
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
        assert (tmp_path / name / "sent.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("protect", ["none", "secure-sum"])
def test_a_full_disk_at_a_party_is_no_refusal_and_no_last_word(tmp_path, monkeypatch, protect):
    more = {} if protect == "none" else {"protect": protect}
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=3, **more)
    full, save = [], ClientFolder.save

    def once(self, kept):
        if self.folder.name == "north" and kept.head.kind == "step" and kept.head.index == 1 and not full:
            full.append(1)
            raise OSError(errno.ENOSPC, "No space left on device")
        save(self, kept)

    monkeypatch.setattr(ClientFolder, "save", once)
    with pytest.raises(OSError, match="No space left"):  # its join ends with that
        office.server().run()
    north = ClientFolder(tmp_path / "north")
    assert not any(line["kind"] == "refusal" for line in north.sent())
    outcome = office.server().run()
    assert [len(record.participants) for record in outcome.history] == [3] * 3
    assert not outcome.rejected


def test_a_line_that_a_full_disk_tore_is_not_read_and_not_glued_to_the_next(tmp_path):
    store = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=2).clerks["north"].store
    head = Head("step", "run", 0, "north", "terms")
    assert store.sent() == []
    store.log(head, b"first")
    with (store.folder / "sent.jsonl").open("ab") as file:
        file.write(b'{"time": "20')
    assert len(store.sent()) == 1
    store.log(head, b"second")
    assert [line["bytes"] for line in store.sent()] == [5, 6]


@pytest.mark.slow
def test_float16_halves_the_bytes_and_changes_little(tmp_path):
    exact = Office(tmp_path / "exact", algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=10)
    half = Office(tmp_path / "half", algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=10, payload="float16")
    first, second = exact.server().run(), half.server().run()
    assert second.history[0].bytes_up < first.history[0].bytes_up
    assert not np.array_equal(exact.factors("north").V, half.factors("north").V)
    errors = [sum(s.sse for s in o.scores.values()) for o in (first, second)]
    assert errors[1] == pytest.approx(errors[0], rel=0.01)


def test_a_survey_gives_every_party_the_same_weights(tmp_path):
    method = algorithms.PooledNMF(2, tol=0.0, start="random")
    office = Office(tmp_path, method, OWNERS, rounds=1, survey="scale")
    office.server().run()
    scale = 1 / np.sqrt((X**2).mean(0))
    run = local(method, {n: rows * scale for n, rows in OWNERS.items()}, 1)
    np.testing.assert_allclose(office.factors("south").V, run.V, rtol=1e-9)


def test_results_of_an_earlier_run_are_moved_aside(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(2, tol=0.0, start="random"), OWNERS, rounds=1)
    folder, done = tmp_path / "north", []
    for _ in range(3):
        office.server().run()
        done.append((ClientFolder.run_of(folder / "result"), (folder / "result" / "factors.safetensors").read_bytes()))
        shutil.rmtree(tmp_path / "server")
    assert len({run for run, _ in done}) == 3
    assert sorted(path.name for path in (folder / "runs").iterdir()) == sorted(run for run, _ in done[:2])
    for run, data in done[:2]:
        assert (folder / "runs" / run / "factors.safetensors").read_bytes() == data


def test_a_checkpoint_of_other_terms_is_refused(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=2)
    office.server().run()
    office.agreement = replace(office.agreement, terms="0" * 64)
    with pytest.raises(CheckpointError, match="terms"):
        office.server().run()


@pytest.mark.slow
def test_stop_ends_after_the_round_and_everybody_keeps_what_was_reached(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=50)

    def tamper(name, answer):
        if read_head(answer).index == 1:
            (tmp_path / "server" / "stop").touch()
        return [Arrival(name, answer)]

    office.post.tamper = tamper
    outcome = office.server().run()
    assert (outcome.status, len(outcome.history)) == ("stopped", 2)
    assert_same_bits(office, local(algorithms.PooledNMF(3, tol=0.0), OWNERS, 2))


def replay(algorithm, owners, order):
    """Take the steps of an asynchronous run again, in the order in which its uploads arrived."""
    federation = fedfactor.Federation(owners)
    meta = replace(federation.prepare(algorithm.domain), n_rows=None)
    server, down = algorithm.init_server(meta, Round(5, 0))
    states = {n: client.begin(algorithm, federation.shard(n), meta, 5, n) for n in meta.clients}
    work, steps = dict.fromkeys(meta.clients, down), dict.fromkeys(meta.clients, 0)
    for index, name in enumerate(order):
        at = Round(5, steps[name], name, (name,))
        states[name], up = client.step(algorithm, federation.shard(name), states[name], work[name], at)
        steps[name] += 1
        server, down = algorithm.server_step(server, freeze(up), Round(5, index, participants=(name,)))
        work[name] = down
    down = algorithm.settle(server, down)
    return {n: client.end(algorithm, federation.shard(n), states[n], down)[0] for n in meta.clients}


@pytest.mark.parametrize("killed", [False, True])
def test_an_asynchronous_run_is_its_replay(tmp_path, killed):
    algorithm = algorithms.AsynSD(3)
    office = Office(tmp_path, algorithm, OWNERS, rounds=3)
    held, count = [], []

    def tamper(name, answer):
        count.append(name)
        if killed and len(count) == 5:
            raise Killed
        if (
            name == "west" and read_head(answer).kind == "step"
        ):  # slow: each answer comes with the next message of others
            held.append(Arrival(name, answer))
            return []
        late, held[:] = list(held), []
        return [Arrival(name, answer), *late]

    office.post.tamper = tamper
    try:
        outcome = office.server().run()
    except Killed:
        office.post.box, held[:] = [], []
        outcome = office.server().run()
    order = [record.participants[0] for record in outcome.history]
    assert len(order) == 9
    assert set(order) == set(OWNERS)
    assert order.count("west") < order.count("north")
    for name, kept in replay(algorithm, OWNERS, order).items():
        for (path, mine), (_, again) in zip(leaves(office.factors(name)), leaves(kept), strict=True):
            np.testing.assert_array_equal(mine, again, err_msg=f"{name} {path}")


def test_a_head_survives_bytes():
    head = Head("step", "run", 3, "north", TERMS, attempt=2, since=1, session=9, participants=("north", "south"))
    assert read_head(seal(head)) == head


def test_a_round_does_not_wait_its_whole_deadline_for_who_is_known_to_be_gone(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=3)

    def tamper(name, answer):
        if name == "west" and read_head(answer).kind == "step" and read_head(answer).index == 1:
            office.post.here.pop("west")  # gone with its answer, for good
            return []
        return [Arrival(name, answer)]

    office.post.tamper = tamper
    outcome = office.server(minimum=2, deadline=10_000.0, absent=50.0).run()
    assert [len(record.participants) for record in outcome.history] == [3, 2, 2]
    assert outcome.finished == ("north", "south")
    assert 150 < office.clock.now < 400  # 50 s in each of two rounds and at the end


def test_nobody_waits_for_who_was_removed_but_everybody_where_nobody_may_be_missing(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=2)
    office.post.here.pop("west")
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / REMOVED).write_text('["west"]')
    outcome = office.server(minimum=2, deadline=10_000.0, gather=10_000.0).run()
    assert outcome.finished == ("north", "south")
    assert office.clock.now < 10
    other = Office(tmp_path / "b", algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=2)
    other.post.here.pop("west")
    with pytest.raises(NotEnough, match="missing: west"):
        other.server(minimum=2, dropouts="wait").run()


def test_a_run_that_is_given_up_ends_at_once(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=2)
    office.post.tamper = lambda name, answer: []
    server = office.server()
    (tmp_path / "server" / ABANDON).write_text("")
    with pytest.raises(AbandonedError, match="another run"):
        server.run()


@pytest.mark.slow
def test_results_of_each_run_are_kept_with_what_they_were_made_under(tmp_path):
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=2)
    first = office.server().run()
    V = office.factors("north").V
    shutil.rmtree(tmp_path / "server")
    again = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=2, seed=6)
    second = again.server().run()
    store = ClientFolder(tmp_path / "north")
    assert list(store.results()) == [first.run, second.run]
    kept = store.results()[first.run]
    np.testing.assert_array_equal(from_bytes((kept / "factors.safetensors").read_bytes())["factors"].V, V)
    assert (kept / "agreement.json").exists()


def test_a_run_says_where_it_stands_once_a_second_or_when_it_must(tmp_path, monkeypatch):
    made = Office(tmp_path, algorithms.PooledNMF(3), OWNERS).server()
    now = [1000.0]
    monkeypatch.setattr(server.time, "monotonic", lambda: now[0])

    def said(state, after=0.0, **more):
        now[0] += after
        made.tick({"state": state}, **more)
        return json.loads((tmp_path / "server" / "status.json").read_text())["state"]

    assert said("first") == "first"
    assert said("too soon", 0.9) == "first"
    assert said("must", force=True) == "must"
    assert said("a second later", 1.0) == "a second later"


def test_the_record_of_a_run_names_the_factor_it_started_at(tmp_path):
    agreement = Office(tmp_path, algorithms.PooledNMF(3), OWNERS).agreement
    outcome = server.Outcome("run", "done", (), None, {}, (), {})
    assert outcome.summary(agreement)["parents"] == []
    assert outcome.summary(replace(agreement, start="a print"))["parents"] == ["a print"]


def test_rows_that_take_part_are_kept_with_the_rows(tmp_path):
    agreement = Office(tmp_path / "all", algorithms.PooledNMF(3), OWNERS).agreement
    some = np.array([True, False, True])
    kept = ClientFolder.make(tmp_path / "some", agreement, Shard(np.eye(3)), some)
    np.testing.assert_array_equal(kept.counted, some)
    assert ClientFolder.make(tmp_path / "every", agreement, Shard(np.eye(3))).counted is None


def test_a_report_without_a_bound_is_fit_for_json():
    report = {"mode": "none", "epsilon": float("inf"), "rounds": 3}
    assert server.written(report) == {"mode": "none", "epsilon": "inf", "rounds": 3}


def test_refused_messages_do_not_fill_the_disk(tmp_path):
    """Each left a file of its own, as many as a hostile server cared to send."""
    office = Office(tmp_path, algorithms.PooledNMF(3, tol=0.0), OWNERS, rounds=2)
    north, store = office.clerks["north"], ClientFolder(tmp_path / "north")
    for index in range(REFUSALS + 10):
        assert read_head(north.answer(seal(Head("step", f"{index:016x}", 0, "north", "0" * 64)))).kind == "refusal"
    assert list((tmp_path / "north" / "sent").iterdir()) == []
    assert len(store.sent()) == REFUSALS
    again = RemoteClient(store)  # a restarted party does not begin a new count
    assert read_head(again.answer(b"nonsense")).kind == "refusal"
    assert len(store.sent()) == REFUSALS
    office.server().run()  # answers are listed all the same
    assert {line["kind"] for line in store.sent()[REFUSALS:]} == {"step", "end"}
