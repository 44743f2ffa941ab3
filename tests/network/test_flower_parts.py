"""What stands between Flower and our messages, without starting any of its processes."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import time
from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr")

import httpx
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from claims import _flower as real
from fedfactor.core.errors import DataError, ProtocolError
from fedfactor.federation import processes as children
from fedfactor.federation.party import Member
from fedfactor.federation.trial import Trial
from fedfactor.network.client import RemoteClient
from fedfactor.network.flower import control
from fedfactor.network.flower.apps import answer
from fedfactor.network.flower.connection_limits import Door
from fedfactor.network.flower.long_polling import VAIN, Bell
from fedfactor.network.flower.objects import wait_for_pieces
from fedfactor.network.flower.records import SHORT, from_record, to_record
from fedfactor.network.flower.superlink import BODY, Gate, gated
from fedfactor.network.flower.supernode import come_back
from fedfactor.network.flower.transport import KEPT, FlowerTransport
from fedfactor.network.mailbox.proof import refusal
from fedfactor.network.message_format import read_head


@pytest.fixture
def in_a_run(monkeypatch):
    """As in a process that Flower started, which marks messages with its run."""
    for number in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, number, 1)


def test_control_is_for_this_machine_only():
    def admits(path, client, server="10.0.0.1"):
        return Gate._admits({"path": path, "client": (client, 1), "server": (server, 8000)})

    assert admits("/v1/fleet/pull-messages", "10.0.0.9")
    assert not admits("/v1/control/start-run", "10.0.0.9")
    assert not admits("/v1/runtime/acquire-task", "10.0.0.9")
    assert not admits("/v1/control/start-run", "127.0.0.2", "127.0.0.1")
    assert admits("/v1/control/start-run", "127.0.0.1", "127.0.0.1")
    assert admits("/v1/control/start-run", "10.0.0.1")


def test_nobody_can_claim_in_a_header_to_be_this_machine(monkeypatch):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # as many a container image sets it

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    served, door = gated(app, log_config=None, lifespan="off", proxy_headers=True)
    door.close()
    served.load()
    said = []

    async def send(part):
        said.append(part.get("status"))

    scope = {
        "type": "http", "path": "/v1/control/start-run", "client": ("10.0.0.9", 1), "server": ("10.0.0.1", 8000),
        "scheme": "https", "headers": [(b"x-forwarded-for", b"127.0.0.1")],
    }  # fmt: skip
    asyncio.run(served.loaded_app(scope, None, send))
    assert said[0] == 403


def head_of(key, ahead=0.0):
    """Sign as a node does, with a clock that may be wrong."""
    from base64 import b64encode

    from flwr.supercore.date import now
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

    moment, public = (now() + timedelta(seconds=ahead)).isoformat(), public_key_to_bytes(key.public_key())
    return public, [
        (b"flwr-public-key", b64encode(public)),
        (b"flwr-timestamp", moment.encode()),
        (b"flwr-signature", b64encode(sign_message(key, moment.encode()))),
    ]


def test_of_who_has_no_key_no_body_is_read():
    from cryptography.hazmat.primitives.asymmetric import ec

    known, eve = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    public, head = head_of(known)
    stolen = [(b"flwr-public-key", head[0][1]), *head_of(eve)[1][1:]]  # the key of a party, signed by somebody else
    keys = {public.strip()}
    assert refusal(head, keys) is None
    assert all(refusal(h, keys) for h in (head_of(eve)[1], stolen, head[:2], [], [(b"flwr-public-key", b"%%")]))

    async def ask(headers, path="/v1/fleet/push-object"):
        said, read = [], []

        async def app(scope, receive, send):
            await receive()
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def receive():
            read.append(1)
            return {"type": "http.request", "body": b"x", "more_body": False}

        async def send(message):
            said.append(message.get("status"))

        scope = {"type": "http", "path": path, "client": ("10.0.0.9", 1), "server": ("10.0.0.1", 1)}
        await Gate(app, lambda: keys)({**scope, "headers": headers}, receive, send)
        return said[0], len(read)

    assert asyncio.run(ask(head)) == (200, 1)
    assert asyncio.run(ask(stolen)) == (412, 0)
    assert asyncio.run(ask([])) == (412, 0)
    assert asyncio.run(ask([], "/health")) == (200, 0)
    assert asyncio.run(ask([(b"content-length", b"9" * 30)], "/v1/fleet/x")) == (413, 0)


def test_a_wrong_clock_is_named_to_who_has_a_key():
    from cryptography.hazmat.primitives.asymmetric import ec

    known, eve = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    keys = {head_of(known)[0].strip()}
    assert refusal(head_of(known, 3)[1], keys) is None
    assert "7 s ahead of the server's" in refusal(head_of(known, 7)[1], keys)
    assert "400 s behind the server's" in refusal(head_of(known, -400)[1], keys)
    assert "clock" not in refusal(head_of(eve, 7)[1], keys)


def leaves(guest):
    guest.settimeout(0.2)
    try:
        return guest.recv(1) == b""
    except TimeoutError:
        return False


def test_strangers_at_the_door_stand_in_their_own_way():
    now = [0.0]
    with Door("127.0.0.1", 0, strangers=4, grace=10.0, turn=2.0, clock=lambda: now[0]) as door:
        door.listen(200)
        door.setblocking(False)
        there, outside = door.getsockname(), []

        def come(address):
            outside.append(socket.create_connection(there, 5, source_address=(address, 0)))
            try:
                return door.accept()[0]
            except BlockingIOError:
                return None

        flood = [come("127.0.0.2") for _ in range(8)]
        assert [guest is not None for guest in flood] == [True] * 4 + [False] * 4  # the crowd is turned away
        party = come("127.0.0.9")  # somebody else is let in at once, in the place of the oldest of the crowd
        assert [leaves(guest) for guest in flood[:4]] == [True, False, False, False]
        assert door.strangers == 4
        now[0] = 3.0
        again = come("127.0.0.2")
        assert again is not None  # after their turn, strangers make room for each other
        assert leaves(flood[1])
        door.prove(party.getpeername())
        assert door.strangers == 3
        now[0] = 14.0
        door.sweep()
        assert door.strangers == 0
        assert not leaves(party)  # known, and stays
        for guest in (*flood[:4], party, again, *outside):
            guest.close()


def test_sockets_that_nobody_closes_yet_do_not_use_up_files_without_end():
    now = [0.0]
    with Door("127.0.0.1", 0, strangers=4, grace=1.0, clock=lambda: now[0]) as door:
        door.listen(200)
        door.setblocking(False)
        crowd, kept = [socket.create_connection(door.getsockname(), 5) for _ in range(120)], []
        for _ in range(200):
            now[0] += 0.5
            with contextlib.suppress(BlockingIOError):
                kept.append(door.accept()[0])
        assert len(kept) <= 4 + 24
        for other in (*kept, *crowd):
            other.close()


def test_long_requests_are_cut_off():
    async def ask(headers, parts):
        said, read = [], []

        async def app(scope, receive, send):
            while (part := await receive()).get("more_body"):
                read.append(len(part["body"]))
            await send({"type": "http.response.start", "status": 200, "headers": []})

        queue = [{"type": "http.request", "body": body, "more_body": True} for body in parts]
        queue.append({"type": "http.request", "body": b"", "more_body": False})

        async def receive():
            return queue.pop(0)

        async def send(message):
            said.append(message)

        scope = {"type": "http", "path": "/v1/fleet/push-object", "client": ("10.0.0.9", 1), "server": ("10.0.0.1", 1)}
        await Gate(app)({**scope, "headers": headers}, receive, send)
        return [message["status"] for message in said if "status" in message], sum(read)

    assert asyncio.run(ask([(b"content-length", str(BODY + 1).encode())], []))[0] == [413]
    piece = b"x" * (8 << 20)
    status, read = asyncio.run(ask([], [piece] * 10))
    assert status == []
    assert read <= BODY
    assert asyncio.run(ask([], [piece] * 2)) == ([200], 16 << 20)


def test_a_short_message_is_one_object_beside_its_record():
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

    assert len(get_all_nested_objects(to_record(b"abc"))) == 2


def test_nodes_wait_at_the_gate_until_something_is_handed_in():
    async def scene():
        bell, said = Bell(hold=30.0), []

        async def send(part):
            said.append(part)

        async def look(node, body=b""):
            told = await bell.held(node, send)
            await told({"type": "http.response.body", "body": body})

        await asyncio.wait_for(look(b"a"), 5)  # the first look is never held
        waiting = asyncio.create_task(look(b"a"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await asyncio.wait_for(look(b"b"), 5)  # nor is that of another node
        bell.announced(2)
        bell.piece()
        await asyncio.sleep(0.05)
        assert not waiting.done()  # not before the last piece has come
        bell.piece()
        await asyncio.wait_for(waiting, 5)
        bell.announced(0)
        await asyncio.wait_for(look(b"a", b"x" * 200), 5)  # rung while nobody waited: not held
        await asyncio.wait_for(look(b"a"), 5)  # got something, so there may be more
        assert len(said) == 5
        short = Bell(hold=0.02)
        passed = [await asyncio.wait_for(short.held(b"a", send), 5) is not None for _ in range(VAIN + 2)]
        assert passed == [True, *[False] * (VAIN - 1), True, False]  # nothing comes: now and then one is let through
        short.announced(1)
        assert await short.held(b"b", send) is not None  # a node that never looked is not kept for ever

    asyncio.run(scene())


def test_records_that_are_no_message_are_rejected():
    assert from_record(to_record(b"abc")) == b"abc"
    assert from_record(to_record(bytes(SHORT + 1))) == bytes(SHORT + 1)  # long ones are cut into pieces
    array = Array(dtype="uint8", shape=(3,), stype="safetensors", data=b"abc")
    for content in (
        RecordDict(),
        RecordDict({"letter": ConfigRecord({"letter": "abc"})}),
        RecordDict({"letter": ConfigRecord({"letter": b"abc", "more": b"abc"})}),
        RecordDict({"other": ConfigRecord({"letter": b"abc"})}),
        RecordDict({"letter": ArrayRecord()}),
        RecordDict({"letter": ArrayRecord({"letter": Array(np.zeros(3))})}),
        RecordDict({"letter": ArrayRecord({"letter": array, "more": array})}),
        RecordDict({"letter": ArrayRecord({"letter": array}), "more": ArrayRecord({"letter": array})}),
        RecordDict({"other": ArrayRecord({"letter": array})}),
        None,
    ):
        with pytest.raises(ProtocolError):
            from_record(content)


@pytest.mark.slow
def test_a_record_that_is_no_message_is_answered_with_a_refusal(tmp_path, in_a_run):
    """Without an answer a SuperNode waits for ever."""
    trial = Trial(tmp_path / "all", real.write_rows(tmp_path), real.terms("PooledNMF", 1))
    store = Member(trial.toml, trial.root / "north.key", trial.folder("north")).sign_up(trial.files["north"])
    message = Message(RecordDict({"odd": ConfigRecord({"x": 1})}), 7, MessageType.QUERY)
    message.metadata.__dict__["_message_id"] = "1"
    told = read_head(from_record(answer(RemoteClient(store), message).content))
    assert told.kind == "refusal"
    assert store.sent()[-1]["kind"] == "refusal"


def test_a_message_whose_sender_died_is_given_up_in_time(monkeypatch):
    inflatable = pytest.importorskip("flwr.supercore.inflatable.inflatable_utils")
    for function in (inflatable.pull_objects, inflatable.pull_and_inflate_object_from_tree):
        monkeypatch.setattr(function, "__kwdefaults__", dict(function.__kwdefaults__))
    looks = []

    def never(piece):
        looks.append(piece)
        raise inflatable.ObjectUnavailableError(piece)

    wait_for_pieces(0.4)
    began = time.monotonic()
    with pytest.raises(inflatable.ObjectPullError):
        inflatable.pull_objects(["a"], never)
    assert 0.4 <= time.monotonic() - began < 20
    assert len(looks) > 2


class Fleet:
    """A server that takes a node for alive until it is told otherwise."""

    def __init__(self):
        self.online, self.told = True, []

    def activate(self):
        if self.online:
            request = httpx.Request("POST", "https://server")
            raise httpx.HTTPStatusError("2004", request=request, response=httpx.Response(400, request=request))
        self.online = True
        return SimpleNamespace(node_id=5)

    def connection(self):
        server = self

        class Connection:
            def ActivateNode(self, request):
                return server.activate()

            def DeactivateNode(self, request):
                server.online = False
                server.told.append(request.node_id)

        return Connection


def test_a_killed_node_comes_back_in_its_own_name_and_a_new_one_does_not_push_in(tmp_path):
    server, file = Fleet(), tmp_path / "node"
    connection = server.connection()
    come_back(connection, file)
    node = connection()
    with pytest.raises(httpx.HTTPStatusError):
        node.ActivateNode(None)
    server.online = False
    assert node.ActivateNode(None).node_id == 5
    assert server.told == []
    assert node.ActivateNode(None).node_id == 5  # its last process was killed
    assert server.told == [5]


def test_one_party_takes_part_once(tmp_path):
    trial = Trial(tmp_path / "all", real.write_rows(tmp_path), real.terms("PooledNMF", 1))
    member = Member(trial.toml, trial.root / "north.key", trial.folder("north"))
    store = member.sign_up(trial.files["north"])
    with (trial.folder("north") / "join.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="End that fedfactor join first"):
            member.join(store)


def test_telemetry_is_off_unless_the_user_turns_it_on(monkeypatch):
    for name in ("FLWR_TELEMETRY_ENABLED", "FLWR_DISABLE_UPDATE_CHECK"):
        monkeypatch.delenv(name, raising=False)
    quiet = children.quiet_environment({})
    assert (quiet["FLWR_TELEMETRY_ENABLED"], quiet["FLWR_DISABLE_UPDATE_CHECK"]) == ("0", "1")
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    assert children.quiet_environment({})["FLWR_TELEMETRY_ENABLED"] == "1"


class Grid:
    """What Flower hands to a ServerApp, with nodes that answer when they are told to."""

    def __init__(self, **keys):
        self.nodes = [
            SimpleNamespace(node_id=number, public_key=key, status="online", last_activated_at="noon")
            for number, key in enumerate(keys.values(), 1)
        ]
        self.pushed, self.replies, self.looks = [], [], 0

    def get_nodes(self):
        self.looks += 1
        return self.nodes

    def push_messages(self, messages):
        self.pushed += messages
        return [f"ticket {len(self.pushed) - len(messages) + i}" for i in range(len(messages))]

    def pull_messages(self, tickets):
        found = [each for each in self.replies if each.metadata.reply_to_message_id in tickets]
        self.replies = [each for each in self.replies if each not in found]
        return found

    def reply(self, ticket, content=None, error=None):
        about = SimpleNamespace(reply_to_message_id=f"ticket {ticket}")
        self.replies.append(
            SimpleNamespace(metadata=about, content=content, error=error, has_error=lambda: bool(error))
        )


def test_a_transport_speaks_to_registered_keys_that_are_online(in_a_run):
    grid = Grid(north=b"key n\n", south=b"key s", stranger=b"other")
    grid.nodes[1].status = "offline"
    transport = FlowerTransport(grid, {"north": b"key n", "south": b"key s\n"}, ttl=7.0)
    assert transport.present() == {"north": "1 noon"}
    transport.present()
    assert grid.looks == 1  # a list of nodes is good for a second
    transport.send([("north", b"hello"), ("south", b"not there"), ("stranger", b"never")], 100)
    (sent,) = grid.pushed
    assert sent.metadata.dst_node_id == 1
    assert sent.metadata.ttl == 7.0
    assert from_record(sent.content) == b"hello"


def test_a_transport_hands_out_what_has_come_once(in_a_run):
    grid = Grid(north=b"n", south=b"s")
    transport = FlowerTransport(grid, {"north": b"n", "south": b"s"})
    transport.present()
    assert transport.collect() == ()
    transport.send([("north", b"1"), ("south", b"2")], 100)
    grid.reply(0, to_record(b"yes"))
    grid.reply(1, error=SimpleNamespace(reason="x" * 600))
    grid.reply(5, to_record(b"to nobody's question"))
    found = {each.client: each for each in transport.collect()}
    assert found["north"].data == b"yes"
    assert found["south"].failure == "x" * 500
    assert transport.collect() == ()
    transport.send([("north", b"3")], 100)
    grid.reply(2, RecordDict({}))
    (odd,) = transport.collect()
    assert (odd.client, odd.data) == ("north", b"no message")


def test_replies_to_old_messages_are_not_looked_after(in_a_run):
    grid = Grid(north=b"n", south=b"s")
    transport = FlowerTransport(grid, {"north": b"n", "south": b"s"})
    transport.present()
    transport.send([("south", b"")], 100)
    for _ in range(KEPT + 1):
        transport.send([("north", b"")], 100)
    for ticket in range(KEPT + 2):
        grid.reply(ticket, to_record(b"%d" % ticket))
    assert sorted(each.data for each in transport.collect()) == [b"0", *(b"%d" % i for i in range(2, KEPT + 2))]


def test_keys_are_registered_once_and_removed_ones_are_told(monkeypatch):
    registered = []

    class Control:
        nodes = (
            SimpleNamespace(public_key=b"known\n", status="online", last_activated_at="noon"),
            SimpleNamespace(public_key=b"gone", status="unregistered", last_activated_at=""),
        )
        status, closed = 200, 0

        @classmethod
        def from_server_address(cls, **where):
            assert not where["insecure"]
            return cls()

        def ListNodes(self, request):
            return SimpleNamespace(nodes_info=self.nodes)

        def RegisterNode(self, request):
            if self.status != 200:
                raise httpx.HTTPStatusError("no", request=None, response=httpx.Response(self.status))
            registered.append(request.public_key)

        def close(self):
            Control.closed += 1

    monkeypatch.setattr(control, "ControlHttpClient", Control)
    control.register_keys("here:1", b"", [b"known", b"new", b"gone"])
    assert registered == [b"new", b"gone"]
    assert control.connected("here:1", b"") == {b"known": (True, "noon"), b"gone": (False, "")}
    Control.status = 409
    with pytest.raises(control.KeyTakenError, match="wanted again"):
        control.register_keys("here:1", b"", [b"new"])
    Control.status = 500
    with pytest.raises(httpx.HTTPStatusError):
        control.register_keys("here:1", b"", [b"new"])
    assert Control.closed == 4
