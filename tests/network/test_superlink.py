"""The gate before Flower's server, its door and its bell, and a node's own waits: each alone, without a server."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

import httpx

from fedfactor.federation import keys
from fedfactor.network.flower import (
    apps,
    ask_server,
    client_process,
    connection_limits,
    long_polling,
    objects,
    superlink,
    supernode,
    transport,
)
from fedfactor.network.flower.connection_limits import Door
from fedfactor.network.flower.long_polling import Bell
from fedfactor.network.flower.superlink import BODY, HEALTH, KNOCK, Gate, Registered, _about, _counted, _declared, _Room
from fedfactor.network.flower.supernode import _Clock, watch
from fedfactor.network.mailbox.boxes import OTHER_TERMS, PARTY, RUN, TERMS
from fedfactor.network.mailbox.connection_status import ConnectionStatus
from fedfactor.network.mailbox.proof import Signer, key_of

HERE, THERE = ("10.0.0.1", 5), ("10.0.0.9", 5)


def test_limits_that_flower_and_honest_parties_rely_on():
    assert (superlink.BODY, superlink.LOCAL, superlink.HEAD, superlink.SECRET) == (2**25, 2**25, 2**14, 2**16)
    assert superlink.APP_HOLD == 1.0
    assert (long_polling.HOLD, long_polling.EMPTY, long_polling.VAIN, long_polling.QUIET) == (5.0, 64, 6, 5.0)
    assert (
        connection_limits.STRANGERS,
        connection_limits.GRACE,
        connection_limits.TURN,
        connection_limits.LEAVING,
    ) == (48, 15.0, 2.0, 24)
    assert (supernode.IDLE, supernode.HEARTBEAT, supernode.PIECES, supernode.RETRY) == (3, 10, 15.0, 3)
    assert (objects.FIRST, objects.LONGEST) == (0.05, 1.0)
    assert (transport.FRESH, transport.KEPT) == (1.0, 4)


class Talk:
    """Speaks to a gate as uvicorn would."""

    def __init__(self, app=None, **options):
        self.reached, self.app = [], app or self._app
        self.gate = Gate(self.app, **options)

    async def _app(self, scope, receive, send):
        body = b""
        while True:
            part = await receive()
            body += part.get("body", b"")
            if not part.get("more_body"):
                break
        self.reached.append((scope["path"], body))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"from the app"})

    def ask(self, path, client=HERE, headers=(), body=b"", kind="http"):
        said = []

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(part):
            said.append(part)

        scope = {"type": kind, "path": path, "client": client, "server": ("10.0.0.1", 8000), "headers": list(headers)}
        asyncio.run(self.gate(scope, receive, send))
        status = next((part["status"] for part in said if "status" in part), None)
        return status, b"".join(part.get("body", b"") for part in said)


class Mailbox:
    def __init__(self):
        self.came = []

    async def party(self, key, scope, receive, send):
        self.came.append(("party", key))

    def turned_away(self, key):
        self.came.append(("turned away", key))

    async def run(self, scope, receive, send):
        self.came.append(("run", scope["path"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})


class Standing:
    def __init__(self):
        self.proved = []

    def prove(self, peer):
        self.proved.append(peer)


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    keys.make_key(folder / "key", "north")
    head = [(name.encode(), value.encode()) for name, value in Signer.of(folder / "key").head().items()]
    return head, key_of(head)


class TestGate:
    def test_health_is_for_everybody_and_no_body_of_it_is_read(self):
        talk = Talk()
        assert talk.ask(HEALTH, THERE, body=b"long")[0] == 200
        assert talk.reached == [(HEALTH, b"")]

    def test_other_machines_get_no_further_than_the_fleet(self):
        talk = Talk()
        status, said = talk.ask("/v1/control/x", THERE)
        assert status == 403
        assert json.loads(said)["detail"].startswith("Only nodes")
        assert talk.ask("/v1/control/x", None)[0] == 403
        assert talk.ask("/v1/control/x", ("no address", 1))[0] == 403
        assert talk.ask("/v1/control/x", HERE, body=b"")[0] == 200
        assert talk.reached == [("/v1/control/x", b"")]

    def test_websockets_end_here_and_lifespans_pass(self):
        talk = Talk()
        assert talk.ask("/v1/fleet/x", kind="websocket") == (None, b"")
        assert talk.reached == []
        assert talk.ask("", kind="lifespan")[0] == 200

    def test_what_says_that_it_is_too_long_is_not_read(self):
        size = [(b"Content-Length", str(BODY + 1).encode())]
        talk = Talk(mailbox=Mailbox())
        assert talk.ask("/v1/control/x", headers=size)[0] == 413
        assert talk.ask("/v1/control/x", headers=[(b"content-length", str(BODY).encode())])[0] == 200
        assert talk.ask(RUN, headers=size)[0] == 200  # looked after by the mailbox itself

    def test_nodes_show_a_registered_key(self, signed):
        head, key = signed
        standing = Standing()
        talk = Talk(keys=lambda: {key}, door=standing)
        assert talk.ask("/v1/fleet/x", THERE, head)[0] == 200
        assert standing.proved == [THERE]
        assert talk.ask("/v1/fleet/x", THERE, [])[0] == 412
        late = [(name, value if name != b"flwr-timestamp" else b"2020-01-01T00:00:00+00:00") for name, value in head]
        assert talk.ask("/v1/fleet/x", THERE, late)[0] == 412
        assert len(talk.reached) == 1
        assert standing.proved == [THERE]

    def test_a_wrong_clock_is_to_try_again(self, signed, monkeypatch):
        head, key = signed
        monkeypatch.setattr(superlink, "refusal", lambda headers, known: "Your clock is 9 s ahead")
        assert Talk(keys=lambda: {key}).ask("/v1/fleet/x", THERE, head)[0] == 503

    def test_who_agreed_to_other_terms_is_told_at_once_and_asked_nothing(self, signed):
        head, key = signed
        box = Mailbox()
        talk = Talk(keys=lambda: {key}, mailbox=box, terms=lambda: "b" * 64)
        status, said = talk.ask(PARTY, THERE, [*head, (TERMS.encode(), b"a" * 64)])
        assert status == 503  # to be tried again: the coordinator may go back to what was agreed
        assert json.loads(said)["detail"] == f"{OTHER_TERMS}: {'b' * 16}"
        assert talk.ask("/v1/fleet/pull-messages", THERE, [*head, (TERMS.encode(), b"a" * 64)])[0] == 503
        assert box.came == [("turned away", key)] * 2
        talk.ask(PARTY, THERE, [*head, (TERMS.encode(), b"b" * 64)])
        talk.ask(PARTY, THERE, head)  # of an older version, which does not say
        assert box.came[2:] == [("party", key)] * 2
        assert talk.reached == []

    def test_terms_and_boxes_lie_behind_the_same_key(self, signed):
        head, key = signed
        box = Mailbox()
        talk = Talk(keys=lambda: {key}, about=lambda: b"terms", mailbox=box)
        assert talk.ask(KNOCK, THERE, head) == (200, b"terms")
        talk.ask(PARTY, THERE, head)
        assert box.came == [("party", key)]
        assert talk.ask(RUN, THERE, head)[0] == 403
        assert talk.ask(RUN, HERE)[0] == 200
        assert talk.reached == []
        bare = Talk()
        assert bare.ask(KNOCK, THERE)[1] == bare.ask(PARTY, THERE)[1] == bare.ask(RUN, HERE)[1] == b"from the app"

    def test_connections_of_this_machine_stay_once_something_was_done(self):
        async def refusing(scope, receive, send):
            await send({"type": "http.response.start", "status": 400, "headers": []})

        for app, proved in ((None, [HERE]), (refusing, [])):
            standing = Standing()
            Talk(app, door=standing).ask("/v1/control/x", HERE)
            assert standing.proved == proved

    def test_who_looks_in_vain_gets_an_empty_answer(self):
        talk = Talk()
        talk.gate._bells = {True: Bell(0.01), False: Bell(0.01)}
        for path, who in (("/v1/fleet/pull-messages", THERE), ("/v1/runtime/pull-messages", HERE)):
            assert talk.ask(path, who)[1] == b"from the app"
            assert talk.ask(path, who) == (200, b"")

    def test_what_is_handed_in_rings_for_the_other_side(self):
        talk, rung = Talk(), []
        talk.gate._bells = {
            side: SimpleNamespace(
                piece=lambda side=side: rung.append((side, "piece")),
                announced=lambda n, side=side: rung.append((side, n)),
            )
            for side in (True, False)
        }
        talk.ask("/v1/fleet/push-object", THERE)
        talk.ask("/v1/runtime/push-messages", HERE)
        assert rung == [(False, "piece"), (True, 0)]

    def test_pieces_that_are_still_wanted_are_counted(self):
        from flwr.proto.fleet_pb2 import PushMessagesResponse
        from flwr.proto.runtime_pb2 import PushAppMessagesResponse

        for kind, node in ((PushMessagesResponse, True), (PushAppMessagesResponse, False)):
            made = kind(objects_to_push=["a", "b", "a"]).SerializeToString()
            assert superlink._pieces(made, node) == 2
        assert superlink._pieces(b"\xff\xff", True) == 0


class TestLengths:
    @pytest.mark.parametrize(
        ("headers", "size"),
        [
            ([], 0), ([(b"Content-Length", b"12")], 12), ([(b"content-length", b"x")], BODY + 1),
            ([(b"content-length", b"9" * 16)], BODY + 1), ([(b"content-length", b"1" * 15)], int("1" * 15)),
            ([(b"Transfer-Encoding", b"chunked")], -1),
        ],
    )  # fmt: skip
    def test_as_a_request_states_them(self, headers, size):
        assert _declared({"headers": headers}) == size

    def test_reading_stops_when_it_is_too_long(self):
        async def receive():
            return {"body": b"1234"}

        async def scene(most):
            take = _counted(receive, most)
            await take()
            await take()

        asyncio.run(scene(8))
        with pytest.raises(superlink.TooLong):
            asyncio.run(scene(7))
        with pytest.raises(superlink.TooLong):
            asyncio.run(scene(0))

    def test_room_is_shared_by_waiting(self):
        async def scene():
            room, order = _Room(10), []

            async def work(name, size):
                async with room.of(size):
                    order.append(name)
                    await asyncio.sleep(0.01)
                    order.append(name)

            await asyncio.wait_for(asyncio.gather(work("a", 6), work("b", 6), work("c", 4)), 5)
            return order

        order = asyncio.run(scene())
        assert order[:2] == ["a", "c"]
        assert order.index("b") > 2
        assert order.count("b") == 2


class TestRegistered:
    def test_keys_are_read_again_when_the_file_changes(self, tmp_path):
        file = tmp_path / "server.json"
        file.write_text(json.dumps({"keys": {"north": " k1\n"}}))
        known = Registered(file)
        assert known() == {b"k1": "north"}
        assert known() is known()
        assert known.terms() == ""
        file.write_text(json.dumps({"keys": {"south": "k2"}, "terms": "t"}))
        os.utime(file, ns=(1, 1))
        assert known.terms() == "t"
        assert known() == {b"k2": "south"}

    def test_what_is_told_to_who_knocks(self, tmp_path):
        (tmp_path / "agreement.json").write_text('{"terms": "abc"}')
        told = json.loads(_about(tmp_path)())
        assert told["terms"] == "abc"
        assert "numpy" in told["versions"]


def test_the_gate_has_settings_that_nobody_can_widen():
    config, standing = superlink.gated(None, host="127.0.0.1", port=0, proxy_headers=True, workers=4)
    try:
        assert (config.proxy_headers, config.access_log, config.ws, config.workers) == (False, False, "none", 1)
        assert config.h11_max_incomplete_event_size == superlink.HEAD
        assert isinstance(config.app, Gate)
    finally:
        standing.close()


class TestDoor:
    @pytest.fixture
    def standing(self):
        now = [0.0]
        made = Door("127.0.0.1", 0, strangers=2, grace=5.0, turn=1.0, clock=lambda: now[0])
        made.listen()
        made.setblocking(False)
        made.now = now
        yield made
        made.close()

    def come(self, standing):
        guest = socket.create_connection(standing.getsockname())
        return guest, standing.accept()[0]

    def test_strangers_make_room_and_those_with_a_key_stay(self, standing):
        pairs = [self.come(standing) for _ in range(2)]
        assert standing.strangers == 2
        standing.prove(pairs[0][1].peer)
        assert standing.strangers == 1
        pairs.append(self.come(standing))
        line = socket.create_connection(standing.getsockname())
        with pytest.raises(BlockingIOError):
            standing.accept()  # the others have not had their turn yet
        standing.now[0] = 1.0
        pairs.append(self.come(standing))
        assert standing.strangers == 2
        standing.now[0] = 4.9
        standing.sweep()
        assert standing.strangers == 2
        standing.now[0] = 5.0
        standing.sweep()
        assert standing.strangers == 1  # the one that came at 1.0
        standing.now[0] = 6.0
        standing.sweep()
        assert standing.strangers == 0
        for mine, theirs in pairs:
            theirs.close()
            mine.close()
        line.close()
        assert not standing._known
        assert not standing._leaving

    def test_transports_of_those_shown_out_are_ended(self, standing):
        class Ending:
            ended = 0

            def abort(self):
                self.ended += 1

        mine, theirs = self.come(standing)
        early, late = Ending(), Ending()
        standing.attach(theirs.peer, early)
        standing.now[0] = 9.0
        standing.sweep()
        standing.attach(theirs.peer, late)
        assert (early.ended, late.ended) == (1, 1)
        theirs.close()
        mine.close()


class TestNode:
    def test_waits_are_short_while_messages_come_and_grow_otherwise(self, monkeypatch):
        slept = []
        monkeypatch.setattr(supernode.time, "sleep", slept.append)
        clock = _Clock(0.5)
        for seconds in (3, 3, 3, 0.2, 3, 0.01):
            clock.sleep(seconds)
        assert slept == pytest.approx([0.05, 0.075, 0.1125, 0.05, 0.05, 0.01])
        assert clock.monotonic() > 0

    def test_how_requests_go_is_written_down(self, tmp_path):
        outcomes = [httpx.Response(200), httpx.Response(412, text='{"detail": "no"}'), httpx.Response(399)]

        class Connection:
            def _send(self, context):
                found = outcomes.pop(0)
                if isinstance(found, Exception):
                    raise found
                return found

        watch(Connection, ConnectionStatus(tmp_path / "file"))

        def kept():
            return json.loads((tmp_path / "file").read_text())

        Connection()._send(None)
        assert kept()["connected"]
        Connection()._send(None)
        assert (kept()["status"], kept()["error"]) == (412, "no")
        Connection()._send(None)
        assert kept()["connected"]
        outcomes += [httpx.ConnectError("refused"), httpx.ConnectError("certificate: self-signed")]
        for text in ("refused", "certificate: self-signed"):
            with pytest.raises(httpx.ConnectError, match=text):
                Connection()._send(None)
            assert kept()["error"] == text
        outcomes += [httpx.ConnectError("certificate has expired"), httpx.ConnectError("")]
        with pytest.raises(httpx.ConnectError, match="a paper that is no longer right"):
            Connection()._send(None)
        with pytest.raises(httpx.ConnectError):
            Connection()._send(None)
        assert kept()["error"] == "ConnectError"


class TestKnock:
    def ask(self, monkeypatch, tmp_path, response):
        seen, real = [], httpx.Client
        keys.make_key(tmp_path / "key", "north")

        def server(request):
            seen.append(request)
            return response

        def client(verify, timeout):
            assert (verify, timeout) == ({"cadata": "authority"}, 10.0)
            return real(transport=httpx.MockTransport(server))

        monkeypatch.setattr(httpx, "Client", client)
        monkeypatch.setattr(ssl, "create_default_context", lambda **given: given)
        return ask_server.knock("host:1", "authority", (tmp_path / "key").read_bytes()), seen

    def test_terms_are_told(self, monkeypatch, tmp_path):
        told, seen = self.ask(monkeypatch, tmp_path, httpx.Response(200, text='{"terms": "x"}'))
        assert told == {"terms": "x"}
        assert str(seen[0].url) == f"https://host:1{KNOCK}"
        assert "flwr-signature" in seen[0].headers

    @pytest.mark.parametrize(("text", "says"), [('{"detail": "no"}', "no"), ("<html>", "HTTP 412")])
    def test_refusals_are_errors(self, monkeypatch, tmp_path, text, says):
        with pytest.raises(httpx.HTTPError, match=says):
            self.ask(monkeypatch, tmp_path, httpx.Response(412, text=text))

    def test_no_words_are_no_terms(self, monkeypatch, tmp_path):
        assert self.ask(monkeypatch, tmp_path, httpx.Response(200, text=""))[0] == {}


class TestClientProcess:
    @pytest.fixture
    def process(self, monkeypatch):
        tasks, slept = [], []

        class Client:
            def AcquireTask(self, request):
                found = tasks.pop(0)
                if isinstance(found, Exception):
                    raise found
                return found

        monkeypatch.setattr(client_process, "wait_for_pieces", lambda: None)
        monkeypatch.setattr(client_process.ClientProcess, "_connect", lambda self, *guards: Client())
        monkeypatch.setattr(client_process.time, "sleep", slept.append)
        made = client_process.ClientProcess(None, "host:1", b"secret")
        made.tasks, made.slept = tasks, slept
        return made

    def task(self, token="t", there=True):
        return SimpleNamespace(HasField=lambda name: there and name == "task", token=token)

    def test_tasks_are_answered_while_it_lives(self, process, monkeypatch):
        answered = []
        monkeypatch.setattr(process, "_one", lambda token: answered.append(token) or True)
        process.tasks += [
            self.task("", True),
            self.task("x", False),
            self.task("a"),
            self.task("", True),
            httpx.ReadError("x"),
        ]
        assert process.serve(lambda: bool(process.tasks)) is True
        assert answered == ["a"]
        assert process.slept == pytest.approx([0.05, 0.075, 0.05, 1.0])

    def test_a_supernode_that_is_away_is_asked_again(self, monkeypatch, caplog):
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{nobody.getsockname()[1]}"
        slept = []
        monkeypatch.setattr(client_process, "wait_for_pieces", lambda: None)
        monkeypatch.setattr(client_process.time, "sleep", slept.append)
        assert client_process.ClientProcess(None, address, b"secret").serve(lambda: len(slept) < 2) is True
        assert slept == [1.0, 1.0]
        assert "The SuperNode does not answer" in caplog.text

    def test_an_answer_that_was_lost_ends_it(self, process, monkeypatch):
        monkeypatch.setattr(process, "_one", lambda token: False)
        process.tasks += [self.task("a"), self.task("b")]
        assert process.serve(lambda: True) is False
        assert len(process.tasks) == 1


class TestApps:
    def test_a_client_is_opened_once(self, monkeypatch):
        monkeypatch.setattr(apps, "ClientFolder", lambda folder: folder)
        monkeypatch.setattr(apps, "RemoteClient", lambda store: [store])
        apps.client_of.cache_clear()
        assert apps.client_of("x") is apps.client_of("x") == ["x"]
        apps.client_of.cache_clear()

    def test_a_node_without_a_folder_is_told(self):
        with pytest.raises(apps.DataError, match="names no client's folder"):
            apps._answer(None, SimpleNamespace(node_config={}))

    def test_the_server_finds_everything_in_its_folder(self, tmp_path, monkeypatch):
        about = {"policy": {"minimum": 2, "deadline": 4000.0}, "keys": {"a": "k"}, "address": "host:1"}
        (tmp_path / "server.json").write_text(json.dumps(about))
        seen = {}
        agreement = SimpleNamespace(meta=SimpleNamespace(clients=("a",)))
        monkeypatch.setenv("FEDFACTOR_SERVER", str(tmp_path))
        monkeypatch.setattr(
            apps, "Agreement", SimpleNamespace(read=lambda folder: seen.update(read=folder) or agreement)
        )
        monkeypatch.setattr(apps, "wait_for_pieces", lambda seconds: seen.update(pieces=seconds))
        monkeypatch.setattr(apps, "FlowerTransport", lambda grid, known, ttl: seen.update(keys=known, ttl=ttl))
        monkeypatch.setattr(apps, "MailboxTransport", lambda address, folder: (address, folder))
        monkeypatch.setattr(apps, "Both", lambda *ways: seen.update(ways=ways))
        monkeypatch.setattr(apps, "Server", lambda *given: given)
        monkeypatch.setattr(apps, "_journalled", lambda given: seen.update(ran=given))
        apps._serve(None, None)
        assert (seen["read"], seen["pieces"], seen["ttl"], seen["keys"]) == (tmp_path, 1000.0, 8000.0, {"a": b"k"})
        assert seen["ran"][2].minimum == 2
        about["policy"]["deadline"] = 60.0
        (tmp_path / "server.json").write_text(json.dumps(about))
        apps._serve(None, None)
        assert (seen["pieces"], seen["ttl"]) == (15.0, 3600.0)


def test_the_flower_that_starts_another_way_is_not_served(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr.superlink.cli.flower_superlink", SimpleNamespace())
    monkeypatch.setattr("flwr.supercore.app_utils.start_parent_process_monitor", lambda pid: None)
    with pytest.raises(SystemExit, match="starts its server in another way"):
        superlink.main()
