"""The mailbox: a question waits until a party has it, an answer until the run has it, and strangers get nothing."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import threading
import time

import numpy as np
import pytest

pytest.importorskip("httpx")
pytest.importorskip("cryptography")

from fedfactor import run
from fedfactor.algorithms import PooledNMF
from fedfactor.core.pytree import leaves
from fedfactor.federation import certificates, keys
from fedfactor.network.exchange import WaitingRules
from fedfactor.network.mailbox import boxes
from fedfactor.network.mailbox.boxes import AFTER, BEAT, HAVE, PARTY, RUN, SECRET, SECRET_FILE, SESSION, TICKET, Mailbox
from fedfactor.network.mailbox.bundled_messages import pack, unpack
from fedfactor.network.mailbox.node import Node, TurnedAway
from fedfactor.network.mailbox.proof import AHEAD, BEHIND, KEY, MOMENT, SIGNATURE, UNKNOWN, Signer, key_of, refusal
from fedfactor.network.mailbox.transport import MailboxTransport
from fedfactor.network.server import Server
from tests.network.in_process import Office

NORTH, SOUTH = b"key of north", b"key of south"
NAMES = {NORTH: "north", SOUTH: "south"}


class Talk:
    """Speaks to a mailbox as a server would, without one."""

    def __init__(self, hold=5.0, names=NAMES):
        self.box = Mailbox(lambda: names, b"secret", hold)

    async def _say(self, handler, headers, body, gone=None):
        said, queue = {}, [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            if queue:
                return queue.pop()
            await (gone or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(part):
            said.update(part)

        scope = {"headers": [(name.encode(), value.encode()) for name, value in headers.items()]}
        await handler(scope, receive, send)
        head = {name.decode(): value.decode() for name, value in said.get("headers", ())}
        return said.get("status"), head.get(TICKET, ""), said.get("body", b"")

    async def party(self, key, session="1", have="", body=b"", gone=None, **more):
        head = {SESSION: session, HAVE: have, **more}
        return await self._say(lambda *about: self.box.party(key, *about), head, body, gone)

    async def run(self, letters=(), secret="secret", **about):
        status, _, body = await self._say(self.box.run, {SECRET: secret}, pack(letters, about))
        return status, unpack(body) if body and status == 200 else body


def test_a_question_waits_for_its_party_and_the_answer_rides_with_the_next_request():
    async def scene():
        talk = Talk()
        waiting = asyncio.create_task(talk.party(NORTH))
        await asyncio.sleep(0.01)
        await talk.run([("north", b"first")], most=100)
        status, ticket, question = await waiting
        assert (status, question) == (200, b"first")
        waiting = asyncio.create_task(talk.party(NORTH, have=ticket, body=b"answer"))
        _, (letters, about) = await talk.run(wait=5.0)
        assert letters == [("north", b"answer")]
        assert list(about["present"]) == ["north"]
        await talk.run([("north", b"second")], most=100)
        assert (await waiting)[2] == b"second"
        assert (await talk.run(wait=0.0))[1][0] == []

    asyncio.run(scene())


def test_a_question_that_was_lost_on_its_way_is_given_again():
    async def scene():
        talk = Talk(hold=0.01)
        await talk.party(NORTH)
        await talk.run([("north", b"question")], most=100)
        first, again = await talk.party(NORTH), await talk.party(NORTH)
        assert first == again
        assert again[2] == b"question"
        assert (await talk.party(NORTH, have=first[1]))[2] == b""  # it has it now

    asyncio.run(scene())


def test_a_new_process_of_a_party_is_asked_anew_and_a_second_one_is_refused():
    async def scene():
        talk = Talk(hold=0.01)
        await talk.party(NORTH, session="1")
        await talk.run([("north", b"question")], most=100)
        status, _, said = await talk.party(NORTH, session="2")
        assert status == 503
        assert b"Another process" in said
        status, ticket, _ = await talk.party(NORTH, session="2", **{AFTER: "1"})
        assert (status, ticket) == (200, "")  # the run sees another mark, and asks again
        _, (_, about) = await talk.run()
        assert about["present"]["north"][0] == "2"

    asyncio.run(scene())


def test_who_hangs_up_is_gone_and_who_works_gives_signs_of_life(monkeypatch):
    async def scene():
        talk, gone = Talk(hold=30.0), asyncio.Event()
        waiting = asyncio.create_task(talk.party(NORTH, gone=gone))
        await asyncio.sleep(0.01)
        assert set(talk.box.present()) == {"north"}
        gone.set()
        assert (await waiting)[0] is None
        assert talk.box.present() == {}
        assert 0 <= time.time() - talk.box.gone()["north"] < 60  # when it was last heard is not forgotten
        status, ticket, body = await talk.party(NORTH, **{BEAT: "1"})
        assert (status, ticket, body) == (200, "", b"")  # not held
        assert set(talk.box.present()) == {"north"}
        monkeypatch.setattr(boxes, "LIFE", 0.0)
        assert talk.box.present() == {}

    asyncio.run(scene())


def test_who_asks_under_other_terms_is_known_by_name_until_it_comes_under_these(monkeypatch):
    async def scene():
        talk = Talk(hold=0.01)
        talk.box.turned_away(NORTH)
        _, (_, about) = await talk.run()
        assert (about["apart"], about["present"]) == (["north"], {})
        await talk.party(NORTH)
        assert (await talk.run())[1][1]["apart"] == []
        talk.box.turned_away(NORTH)
        monkeypatch.setattr(boxes, "LIFE", 0.0)
        assert talk.box.apart() == []

    asyncio.run(scene())


def test_what_is_too_long_is_not_read_and_of_many_answers_the_last_are_kept():
    async def scene():
        talk = Talk(hold=0.01)
        await talk.run([("north", b"question")], most=1 << 17)
        assert (await talk.party(NORTH, body=bytes((1 << 17) + 1)))[0] == 413
        assert (await talk.run(wait=0.0))[1][0] == []
        for number in range(9):
            await talk.party(NORTH, body=b"%d" % number)
        await talk.party(SOUTH, body=b"x")
        assert (await talk.run(wait=0.0))[1][0] == [*(("north", b"%d" % i) for i in range(5, 9)), ("south", b"x")]

    asyncio.run(scene())


def test_the_run_shows_its_secret_and_who_was_removed_is_not_there():
    async def scene():
        names = dict(NAMES)
        talk = Talk(hold=0.01, names=names)
        await talk.party(NORTH)
        await talk.party(SOUTH)
        status, said = await talk.run(secret="other", wait=0.0)
        assert status == 403
        assert b"north" not in said
        del names[SOUTH]
        assert set((await talk.run())[1][1]["present"]) == {"north"}

    asyncio.run(scene())


def test_a_signature_is_what_flowers_gate_takes(tmp_path):
    asymmetric = pytest.importorskip("flwr.supercore.primitives.asymmetric")
    from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER

    assert (KEY, MOMENT, SIGNATURE) == (FLEET_HTTP_PUBLIC_KEY_HEADER, TIMESTAMP_HEADER, FLEET_HTTP_SIGNATURE_HEADER)
    assert AHEAD < SYSTEM_TIME_TOLERANCE
    assert BEHIND < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
    keys.make_key(tmp_path / "key", "north")
    head = [(name.encode(), value.encode()) for name, value in Signer.of(tmp_path / "key").head().items()]
    public = keys.public_pem(keys.public_line(tmp_path / "key.pub")).strip()
    assert refusal(head, {public}) is None
    assert refusal(head, {NORTH}) == UNKNOWN
    moment = datetime.datetime.fromisoformat(dict(head)[MOMENT.encode()].decode())
    assert abs((datetime.datetime.now(datetime.UTC) - moment).total_seconds()) < 60
    assert asymmetric.bytes_to_public_key(public + b"\n")


@contextlib.contextmanager
def served(folder, names):
    """Serve a mailbox for these parties over TLS, behind the check of their signatures; no part of Flower is there."""
    import uvicorn

    certificates.make_authority(folder, "test")
    certificates.make_server_certificate(folder, ["127.0.0.1"])
    (folder / "ca.pem").write_bytes((folder / "ca.crt").read_bytes())
    (folder / SECRET_FILE).write_text("secret")
    registered = {}
    for name in names:
        keys.make_key(folder / f"{name}.key", name)
        registered[keys.public_pem(keys.public_line(folder / f"{name}.key.pub")).strip()] = name
    mailbox = Mailbox(lambda: registered, b"secret", hold=2.0)

    async def app(scope, receive, send):
        if scope["path"] == RUN:
            await mailbox.run(scope, receive, send)
        elif why := refusal(scope["headers"], registered):
            await boxes.refuse(send, 412, why)
        elif scope["path"] == PARTY:
            await mailbox.party(key_of(scope["headers"]), scope, receive, send)

    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            app, ssl_certfile=str(folder / "server.pem"), ssl_keyfile=str(folder / "server.key"), lifespan="off",
            ws="none", log_level="error",
        )  # fmt: skip
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [line]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"127.0.0.1:{line.getsockname()[1]}"
        server.should_exit = server.force_exit = True
        thread.join(10)


@pytest.mark.slow
@pytest.mark.parametrize("protect", ["none", "secure-sum"])
def test_a_run_through_the_mailbox_gives_the_bits_of_a_local_one(tmp_path, protect):
    pytest.importorskip("uvicorn")
    rng = np.random.default_rng(0)
    owners = {f"owner {i:02d}": rng.gamma(0.5, 1.0, (30, 3)) @ rng.gamma(0.6, 1.0, (3, 8)) for i in range(12)}
    algorithm, rounds = PooledNMF(3, tol=0.0), 4
    more = {} if protect == "none" else {"protect": protect}
    office = Office(tmp_path / "all", algorithm, owners, rounds=rounds, **more)
    place, stop = tmp_path / "server", threading.Event()
    place.mkdir()
    with served(place, owners) as address:
        authority, wrong = (place / "ca.pem").read_text(), []

        def serve(name):
            key, folder = place / f"{name}.key", office.folder / name
            try:
                Node(office.clerks[name], address, authority, key, folder).serve(lambda: not stop.is_set())
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=serve, args=(name,), daemon=True) for name in owners]
        for thread in threads:
            thread.start()
        rules, transport = WaitingRules(len(owners)), MailboxTransport(address, place)
        outcome = Server(office.folder / "server", office.agreement, rules, transport).run()
        stop.set()
        for thread in threads:
            thread.join(20)
        keys.make_key(place / "eve.key", "eve")
        stranger = Node(office.clerks["owner 00"], address, authority, place / "eve.key", tmp_path)
        with pytest.raises(TurnedAway, match="authentication"):
            stranger.serve(lambda: True)
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
