"""The queues of the default transport over real TLS: nothing is lost, nothing is taken twice, one process speaks."""

from __future__ import annotations

import socket
import threading
import time

import numpy as np
import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("httpx")

from fedfactor import run
from fedfactor.algorithms import PooledNMF
from fedfactor.core.pytree import leaves
from fedfactor.network.https import protocol as wire
from fedfactor.network.https.client import PartyClient, TurnedAway, served
from fedfactor.network.https.party_queues import RunInterrupted
from fedfactor.network.server import Server
from fedfactor.network.waiting_rules import WaitingRules
from tests.network.https_world import SERVED, heads, world
from tests.network.in_process import TERMS, Office


@pytest.fixture
def here(tmp_path):
    with world(tmp_path / "fed") as made:
        yield made


def answers(made, wait=1.0):
    return [(arrival.client, arrival.data) for arrival in made.queues.collect(wait)]


def test_a_request_waits_for_its_party_and_the_answer_rides_with_the_next_request(here):
    north = here.wire("north", most=1 << 20)
    first = north.request("POST", wire.EXCHANGE, b"", dict(heads()))
    assert (first.status, first.ticket) == (204, "")  # a new process is answered at once: it knows that it is connected
    assert here.queues.present() == {"north": "1"}
    here.queues.send([("north", b"question")], 100)
    got = north.request("POST", wire.EXCHANGE, b"", dict(heads()))
    assert got.body == b"question"
    again = north.request("POST", wire.EXCHANGE, b"", dict(heads()))
    assert (again.ticket, again.body) == (got.ticket, got.body)  # it was not confirmed: it may have been lost
    done = north.request("POST", wire.EXCHANGE, b"answer", dict(heads(have=got.ticket)), 1.0)
    assert (done.status, done.ticket) == (204, "")
    assert answers(here) == [("north", b"answer")]
    assert answers(here, 0.0) == []
    north.close()


def test_an_empty_body_before_an_answer_is_an_answer_and_after_it_is_none(here):
    north = here.wire("north", most=1 << 20)
    north.request("POST", wire.EXCHANGE, b"", dict(heads()))
    for answer in (b"", b"answer"):
        here.queues.send([("north", b"question")], 100)
        got = north.request("POST", wire.EXCHANGE, b"", dict(heads()))
        for body in (answer, b""):  # the second one waits for the next request
            north.request("POST", wire.EXCHANGE, body, dict(heads(have=got.ticket, hold="0")))
        assert answers(here, 0.0) == [("north", answer)]
    north.close()


def test_a_held_request_is_answered_when_the_run_asks(here):
    north, got = here.wire("north"), []
    north.request("POST", wire.EXCHANGE, b"", dict(heads()))
    asking = threading.Thread(
        target=lambda: got.append(north.request("POST", wire.EXCHANGE, b"", dict(heads(hold="20")), 20.0))
    )
    asking.start()
    time.sleep(0.3)
    assert not got
    began = time.monotonic()
    here.queues.send([("north", b"now")], 100)
    asking.join(10)
    assert time.monotonic() - began < 5
    assert got[0].body == b"now"


def test_a_second_process_is_refused_and_a_new_one_is_asked_anew(here):
    north = here.wire("north")
    north.request("POST", wire.EXCHANGE, b"", dict(heads()))
    here.queues.send([("north", b"question")], 100)
    with pytest.raises(TurnedAway, match=wire.SECOND_PROCESS) as refused:
        north.request("POST", wire.EXCHANGE, b"", dict(heads(session="2")))
    assert refused.value.passes
    reply = north.request("POST", wire.EXCHANGE, b"", dict(heads(session="2", after="1")))
    assert (reply.status, reply.ticket) == (204, "")  # the run sees another session, and asks again
    assert here.queues.present() == {"north": "2"}


def test_a_party_that_hangs_up_is_gone_at_once(here):
    here.ask("north", headers=heads())
    line = here.line(here.context("north"))
    text = "".join(f"{name}: {value}\r\n" for name, value in heads(hold="20"))
    line.sendall(f"POST {wire.EXCHANGE} HTTP/1.1\r\nhost: x\r\n{text}content-length: 0\r\n\r\n".encode())
    time.sleep(0.5)
    assert here.queues.of("north").held is not None
    line.close()
    end = time.monotonic() + 5
    while here.queues.present() and time.monotonic() < end:
        time.sleep(0.02)
    assert here.queues.present() == {}
    there, last = here.queues.since()["north"]
    assert not there
    assert abs(time.time() - last) < 60


def test_parties_under_other_terms_are_refused_and_known(here):
    status, said = here.ask("north", headers=heads(terms="e" * 64))
    assert status == 409
    assert f"{wire.OTHER_TERMS}: {SERVED[:16]}".encode() in said
    assert here.queues.other_terms() == ["north"]
    assert here.queues.present() == {}
    assert here.ask("north", headers=heads())[0] == 204
    assert here.queues.other_terms() == []


def test_a_party_that_was_removed_hears_it_and_is_not_present(here):
    here.ask("north", headers=heads())
    here.registered = {key: name for key, name in here.registered.items() if name != "north"}
    assert here.queues.present() == {}
    status, said = here.ask("north", headers=heads())
    assert status == 403
    assert wire.UNKNOWN_KEY.encode() in said


def test_what_is_served_is_told_to_parties(here):
    about, date = served(here.wire("south"))
    assert (about["terms"], about["party"], about["protocol"]) == (SERVED, "south", wire.VERSION)
    assert date.endswith("GMT")


def test_of_many_answers_the_last_are_kept_and_none_outlives_its_run(here):
    here.ask("north", headers=heads())
    for number in range(5):
        here.ask("north", headers=heads(), body=b"%d" % number)
    assert answers(here) == [("north", b"3"), ("north", b"4")]
    here.ask("north", headers=heads(), body=b"late")
    here.queues.send([("north", b"x")], 1 << 20)
    here.queues.rest()
    assert answers(here, 0.0) == []
    assert here.queues.longest == wire.SHORT


def test_a_server_that_ends_answers_those_who_wait_and_interrupts_its_run(here):
    north, said = here.wire("north"), []
    north.request("POST", wire.EXCHANGE, b"", dict(heads()))

    def wait():
        try:
            north.request("POST", wire.EXCHANGE, b"", dict(heads(hold="20")), 20.0)
        except TurnedAway as away:
            said.append((str(away), away.passes))

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.3)
    began = time.monotonic()
    here.close()
    waiting.join(10)
    assert said == [(wire.ENDING, True)]
    assert time.monotonic() - began < 5
    with pytest.raises(RunInterrupted):
        here.queues.collect(0.0)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_it_listens_where_it_is_told(tmp_path, host):
    if host == "::1":
        try:
            socket.create_server((host, 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("this machine has no IPv6")
    with world(tmp_path / "fed", host=host) as made:
        assert served(made.wire("north"))[0]["party"] == "north"


@pytest.mark.slow
@pytest.mark.parametrize("protect", ["none", "secure-sum"])
def test_a_run_over_https_gives_the_bits_of_a_local_one(tmp_path, protect):
    rng = np.random.default_rng(0)
    owners = {f"owner {i:02d}": rng.gamma(0.5, 1.0, (30, 3)) @ rng.gamma(0.6, 1.0, (3, 8)) for i in range(12)}
    algorithm, rounds = PooledNMF(3, tol=0.0), 4
    more = {} if protect == "none" else {"protect": protect}
    office = Office(tmp_path / "all", algorithm, owners, rounds=rounds, **more)
    stop, wrong = threading.Event(), []
    with world(tmp_path / "fed", *owners, terms=TERMS) as made:

        def serve(name, key):
            client = PartyClient(office.clerks[name], made.wire(key, most=1 << 22), office.folder / name, TERMS)
            try:
                client.serve(lambda: not stop.is_set())
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=serve, args=(name, name), daemon=True) for name in owners]
        for thread in threads:
            thread.start()
        outcome = Server(office.folder / "server", office.agreement, WaitingRules(len(owners)), made.queues).run()
        stop.set()
        for thread in threads:
            thread.join(20)
        made.stranger("eve")
        eve = PartyClient(office.clerks["owner 00"], made.wire("eve"), tmp_path, TERMS)
        with pytest.raises(TurnedAway, match=wire.UNKNOWN_KEY):
            eve.serve(lambda: True)
    assert not wrong
    assert outcome.finished == tuple(sorted(owners))
    assert not outcome.rejected
    wanted = run(algorithm, owners, rounds=rounds, seed=5)
    for name in owners:
        mine = dict(leaves(office.factors(name)))
        for path, leaf in leaves(wanted.factors[name]):
            if protect == "none":
                np.testing.assert_array_equal(mine[path], leaf)
            else:
                np.testing.assert_allclose(mine[path], leaf, atol=1e-5)
