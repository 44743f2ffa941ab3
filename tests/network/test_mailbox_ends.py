"""The two ends of the mailbox, without a network: a party's node, and the run's transport."""

from __future__ import annotations

import json
import threading
import time

import pytest

pytest.importorskip("httpx")
pytest.importorskip("cryptography")

import httpx

from fedfactor.core.errors import ProtocolError
from fedfactor.federation import keys
from fedfactor.network.exchange import Arrival
from fedfactor.network.mailbox import boxes, connection_status, node, transport
from fedfactor.network.mailbox.boxes import AFTER, BEAT, HAVE, SECRET, SECRET_FILE, SESSION, TICKET
from fedfactor.network.mailbox.bundled_messages import pack, unpack
from fedfactor.network.mailbox.connection_status import ConnectionStatus, is_foreign, told
from fedfactor.network.mailbox.node import ForeignServer, Node, TurnedAway
from fedfactor.network.mailbox.proof import CLOCK, KEY, MOMENT, SIGNATURE, UNKNOWN, Signer, key_of, refusal
from fedfactor.network.mailbox.transport import Both, MailboxTransport


def test_limits_that_both_ends_and_proxies_rely_on():
    assert (boxes.HOLD, boxes.LIFE, boxes.WAITING) == (20.0, 20.0, 4)
    assert (boxes.SHORT, boxes.FULL) == (2**16, 2**26)
    assert node.BEATS < boxes.LIFE / 3
    assert (node.TOO_LONG, node.AWAY, node.BEATS, node.LOOK, node.RETRY) == (413, 500, 6.0, 0.3, 3.0)
    assert (transport.WAIT, transport.FRESH, transport.PAUSES) == (1.0, 1.0, (0.1, 0.5, 2.0, 5.0, 5.0))


def test_a_body_begins_with_the_length_of_its_head_in_eight_bytes():
    """A run and its mailbox are started apart, and may be of different versions."""
    body = pack([("north", b"xy"), ("west", b"z")])
    length = int.from_bytes(body[:8], "big")
    assert json.loads(body[8 : 8 + length]) == {"letters": [["north", 2], ["west", 1]], "about": {}}
    assert body[8 + length :] == b"xyz"


def test_answers_are_put_into_one_body_while_they_fit(monkeypatch):
    monkeypatch.setattr(boxes, "FULL", 5)
    held = boxes.Mailbox(dict, b"secret")
    for name, answers in {"north": [b"abc", b"de", b"f"], "west": [b"ghijkl"]}.items():
        held._boxes[name] = boxes._Box()
        held._boxes[name].answers.extend(answers)
    assert held._take() == [("north", b"abc"), ("north", b"de")]
    assert held._take() == [("north", b"f")]
    assert held._take() == [("west", b"ghijkl")]  # one that is too long goes alone
    assert held._take() == []


@pytest.fixture
def offline(monkeypatch):
    """Let both ends speak to a function in the place of a server."""
    real, asked = httpx.Client, []

    def made(handler, **options):
        asked.append(options)
        kept = {name: value for name, value in options.items() if name in ("headers", "timeout")}
        return real(transport=httpx.MockTransport(handler), **kept)

    def install(handler):
        for module in (node, transport):
            monkeypatch.setattr(module.httpx, "Client", lambda **options: made(handler, **options))
            monkeypatch.setattr(module.ssl, "create_default_context", lambda **given: given)
        return asked

    return install


class TestDiary:
    def test_a_change_is_written_at_once_and_the_same_every_few_seconds(self, tmp_path, monkeypatch):
        now = [100.0]
        monkeypatch.setattr(connection_status.time, "time", lambda: now[0])
        file = tmp_path / "connection.json"
        book = ConnectionStatus(file)

        def read():
            return json.loads(file.read_text())

        book.write()
        assert read() == {"connected": True, "time": 100.0, "since": 100.0, "status": 0, "error": ""}
        now[0] = 104.9
        book.write()
        assert read()["time"] == 100.0
        now[0] = 105.0
        book.write()
        assert (read()["time"], read()["since"]) == (105.0, 100.0)
        now[0] = 106.0
        book.write(503, "x" * 600)
        assert read() == {"connected": False, "time": 106.0, "since": 106.0, "status": 503, "error": "x" * 500}
        assert ConnectionStatus.EVERY == 5.0

    @pytest.mark.parametrize(
        ("text", "foreign"),
        [("self-signed certificate", True), ("certificate has EXPIRED", False), ("Hostname mismatch", False),
         ("not yet valid", False), ("not valid for 'x'", False)],
    )  # fmt: skip
    def test_certificates_of_others(self, text, foreign):
        assert is_foreign(text) is foreign

    def test_what_a_server_says(self):
        assert told(httpx.Response(412, text='{"detail": "no"}')) == "no"
        for text in ("<html>", "[]", "{}"):
            assert told(httpx.Response(502, text=text)) == "HTTP 502"


class Remote:
    def __init__(self):
        self.asked = []

    def answer(self, data):
        self.asked.append(data)
        return b"answer to " + data


@pytest.fixture
def party(tmp_path, offline):
    keys.make_key(tmp_path / "key", "north")

    def make(handler):
        make.asked = offline(handler)
        remote = Remote()
        return remote, Node(remote, "host:1", "authority", tmp_path / "key", tmp_path)

    return make


class TestNode:
    def test_questions_are_answered_once_and_the_answer_rides_along(self, party, tmp_path):
        heads, bodies, stop = [], [], threading.Event()

        def server(request):
            heads.append(dict(request.headers))
            bodies.append(request.content)
            if len(bodies) == 1:
                return httpx.Response(200, headers={TICKET: "t1"}, content=b"question")
            stop.set()
            return httpx.Response(200)

        remote, end = party(server)
        end.serve(lambda: not stop.is_set())
        assert remote.asked == [b"question"]
        assert bodies[:2] == [b"", b"answer to question"]
        assert (heads[0][HAVE], heads[1][HAVE]) == ("", "t1")
        assert heads[0][SESSION] == (tmp_path / "session").read_text()
        assert heads[0][AFTER] == ""
        assert {KEY, MOMENT, SIGNATURE} <= set(heads[0])
        assert json.loads((tmp_path / "connection.json").read_text())["connected"]
        again = Node(remote, "host:1", "authority", tmp_path / "key", tmp_path)
        assert again._after == heads[0][SESSION]
        assert again._url == "https://host:1/v1/fleet/fedfactor-box"

    def test_an_answer_is_waited_for_longer_than_the_server_holds_a_request(self, party):
        party(lambda request: httpx.Response(200))
        (options,) = party.asked
        assert options["verify"] == {"cadata": "authority"}
        assert (options["timeout"].read, options["timeout"].connect) == (boxes.HOLD + 15.0, 30.0)

    def test_who_is_turned_away_is_told(self, party, tmp_path):
        _, end = party(lambda request: httpx.Response(412, json={"detail": "no such key"}))
        with pytest.raises(TurnedAway, match="no such key") as raised:
            end.serve(lambda: True)
        assert not raised.value.passes
        assert json.loads((tmp_path / "connection.json").read_text())["status"] == 412

    def test_a_server_that_is_away_is_tried_again(self, party, monkeypatch):
        tries, stop = [], threading.Event()

        def server(request):
            tries.append(1)
            if len(tries) == 1:
                return httpx.Response(500, json={"detail": "starting"})
            if len(tries) == 2:
                raise httpx.ConnectError("refused")
            stop.set()
            return httpx.Response(200)

        _, end = party(server)
        end.serve(lambda: not stop.is_set())
        assert len(tries) >= 3

    def test_somebody_elses_server_gets_nothing(self, party):
        def server(request):
            raise httpx.ConnectError("certificate verify failed: self-signed")

        _, end = party(server)
        with pytest.raises(ForeignServer, match="self-signed"):
            end.serve(lambda: True)

    def test_an_expired_certificate_passes(self, party):
        def server(request):
            raise httpx.ConnectError("certificate has expired")

        _, end = party(server)
        with pytest.raises(httpx.ConnectError):
            end._ask(b"", {})

    def test_an_answer_that_is_too_long_is_not_sent_for_ever(self, party, caplog):
        _, end = party(lambda request: httpx.Response(413))
        assert end._ask(b"long", {}).status_code == 413
        assert "An answer of 4 bytes was longer" in caplog.text

    def test_signs_of_life_are_given_while_a_question_is_worked_on(self, party, monkeypatch):
        heads = []

        def server(request):
            heads.append(dict(request.headers))
            return httpx.Response(200)

        _, end = party(server)
        monkeypatch.setattr(node, "BEATS", 0.01)
        beating = threading.Thread(target=end._beat, daemon=True)
        beating.start()
        time.sleep(0.05)
        assert not heads
        with end._working:
            deadline = time.monotonic() + 5
            while not heads and time.monotonic() < deadline:
                time.sleep(0.01)
        end._ended.set()
        beating.join(5)
        assert heads[0][BEAT] == "1"


@pytest.fixture
def run_end(tmp_path, offline):
    (tmp_path / SECRET_FILE).write_text("secret")

    def make(handler):
        asked = offline(handler)
        return MailboxTransport("host:1", tmp_path), asked

    return make


def reply(letters=(), **present):
    return httpx.Response(200, content=pack(letters, {"present": present, "gone": {"b": 2.0}, "apart": []}))


class TestTransport:
    def test_it_shows_its_secret_and_asks_no_proxy(self, run_end, tmp_path):
        seen = []

        def server(request):
            seen.append((str(request.url), request.headers[SECRET], unpack(request.content)))
            return reply(a=["s", 3.0])

        carrier, asked = run_end(server)
        assert carrier.since() == {"a": (True, 3.0), "b": (False, 2.0)}
        assert seen == [("https://host:1/v1/fedfactor-run", "secret", ([], {}))]
        assert asked[0]["trust_env"] is False
        assert asked[0]["timeout"] == 60.0
        assert asked[0]["verify"] == {"cafile": str(tmp_path / "ca.pem")}
        carrier.close()

    def test_who_is_there_is_looked_up_once_a_second(self, run_end, monkeypatch):
        looks, now = [], [50.0]
        monkeypatch.setattr(transport.time, "monotonic", lambda: now[0])

        def server(request):
            looks.append(1)
            return reply(a=[f"s{len(looks)}", 3.0])

        carrier, _ = run_end(server)
        assert carrier.present() == {"a": "s1"}
        now[0] = 50.9
        assert carrier.present() == {"a": "s1"}
        now[0] = 51.0
        assert carrier.present() == {"a": "s2"}

    def test_questions_go_in_by_the_batch(self, run_end, monkeypatch):
        batches = []

        def server(request):
            batches.append(unpack(request.content))
            return httpx.Response(200)

        monkeypatch.setattr(transport, "FULL", 4)
        carrier, _ = run_end(server)
        carrier.send([("a", b"12"), ("b", b"34"), ("c", b"5"), ("d", b"too long")], 9)
        assert [about for _, about in batches] == [{"most": 9}] * 3
        assert [letters for letters, _ in batches] == [
            [("a", b"12"), ("b", b"34")],
            [("c", b"5")],
            [("d", b"too long")],
        ]
        carrier.send([], 9)
        assert len(batches) == 3

    def test_answers_are_taken_out(self, run_end):
        waits = []

        def server(request):
            waits.append(unpack(request.content)[1])
            return reply([("a", b"x"), ("b", b"")], a=["s", 1])

        carrier, _ = run_end(server)
        assert carrier.collect() == [Arrival("a", b"x"), Arrival("b", b"")]
        carrier.collect(0.0)
        assert waits == [{"wait": 1.0}, {"wait": 0.0}]

    def test_a_busy_mailbox_is_tried_again_and_then_given_up(self, run_end, monkeypatch):
        slept, tries = [], []
        monkeypatch.setattr(transport.time, "sleep", slept.append)

        def server(request):
            tries.append(1)
            if len(tries) % 6 == 3:
                return reply(a=["s", 1])
            raise httpx.ReadTimeout("busy")

        carrier, _ = run_end(server)
        assert carrier.since()["a"] == (True, 1.0)
        assert slept == [0.1, 0.5]
        tries[:] = [1] * 3
        with pytest.raises(ProtocolError, match=r"does not answer\. Start fedfactor serve again"):
            carrier.since()

    def test_a_refusal_is_an_error(self, run_end):
        carrier, _ = run_end(lambda request: httpx.Response(403))
        with pytest.raises(httpx.HTTPStatusError):
            carrier.present()


class Way:
    def __init__(self, there):
        self.there, self.sent, self.waited = there, [], []

    def present(self):
        return self.there

    def send(self, messages, most):
        self.sent.append((list(messages), most))

    def collect(self, wait=None):
        self.waited.append(wait)
        return [Arrival(name) for name in self.there]


class TestBoth:
    def test_flower_is_not_looked_at_while_everybody_is_at_the_mailbox(self):
        mailbox, flower = Way({"a": "1", "b": "2"}), Way({"c": "9"})
        assert Both(mailbox, flower, ["a", "b"]).present() == {"a": "1", "b": "2"}
        assert Both(mailbox, flower, ["a", "b", "c"]).present() == {"a": "1", "b": "2", "c": "9"}
        assert Both(mailbox, Way({"a": "old"}), ["a", "b", "c"]).present()["a"] == "1"

    def test_each_is_written_to_the_way_it_came(self):
        mailbox, flower = Way({"a": "1"}), Way({"b": "9"})
        both = Both(mailbox, flower, ["a", "b"])
        both.send([("a", b"x")], 3)
        assert mailbox.sent == [([("a", b"x")], 3)]
        assert flower.sent == []
        assert both.collect() == [Arrival("a"), Arrival("b")]
        both.send([("a", b"x"), ("b", b"y")], 3)
        assert flower.sent == [([("b", b"y")], 3)]
        both.collect()
        assert mailbox.waited == [1.0, 0.0]  # who answers through Flower is not kept waiting
        mailbox.there = {"a": "1", "b": "2"}
        both.send([("b", b"z")], 3)
        both.collect()
        assert mailbox.waited[-1] == 1.0


class TestProof:
    @pytest.fixture
    def head(self, tmp_path):
        keys.make_key(tmp_path / "key", "north")
        head = Signer.of(tmp_path / "key").head()
        return [(name.upper().encode(), value.encode()) for name, value in head.items()]

    def test_the_clock_may_be_a_little_wrong(self, head, monkeypatch):
        from fedfactor.network.mailbox import proof

        known, real = {key_of(head)}, proof.now()
        for late, says in (
            (0, None),
            (-4, None),
            (-6, f"{CLOCK} 6 s ahead"),
            (300, None),
            (310, f"{CLOCK} 310 s behind"),
        ):
            monkeypatch.setattr(proof, "now", lambda late=late: real + proof.datetime.timedelta(seconds=late))
            found = refusal(head, known)
            assert found is says is None or found.startswith(says)

    def test_anything_else_is_unknown(self, head):
        known = {key_of(head)}
        assert refusal(head, known) is None
        assert refusal(head[:-1], known) == UNKNOWN
        assert refusal([(name, b"!!") for name, _ in head], known) == UNKNOWN
        assert refusal([*head[:2], (head[2][0], head[2][1][:-8])], known) == UNKNOWN
        assert refusal([head[0], (head[1][0], b"no time"), head[2]], known) == UNKNOWN
        assert refusal([head[0], (head[1][0], b"2020-01-01T00:00:00+00:00"), head[2]], known) == UNKNOWN
        assert refusal(head, set()) == UNKNOWN
        for place in (0, 2):  # a key, or a signature, with more in it than belongs there
            assert refusal([(n, v + b"!" if i == place else v) for i, (n, v) in enumerate(head)], known) == UNKNOWN
