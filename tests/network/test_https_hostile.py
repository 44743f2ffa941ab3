"""Attacks on the default transport by outsiders, by parties, by other coordinators, and by the server itself."""

from __future__ import annotations

import contextlib
import datetime
import gzip
import http.client
import socket
import ssl
import subprocess
import threading
import time
import tracemalloc

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("httpx")

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.x509.oid import NameOID

from fedfactor.core.errors import DataError
from fedfactor.federation import certificates
from fedfactor.network.https import connection_limits
from fedfactor.network.https import protocol as wire
from fedfactor.network.https.client import ForeignServer, TurnedAway, Wire, served
from fedfactor.network.https.identity import certificate_request, digest, pinned_certificate, present
from tests.network.https_world import heads, world


@pytest.fixture
def here(tmp_path):
    with world(tmp_path / "fed") as made:
        yield made


def refused(found):
    """Whether a connection ended without an answer."""
    return found[0] in ("ConnectionResetError", "RemoteDisconnected", "SSLEOFError", "SSLError", "BrokenPipeError",
                        "ConnectionAbortedError", "SSLZeroReturnError", "BadStatusLine")  # fmt: skip


def private(path):
    return serialization.load_ssh_private_key(path.read_bytes(), None)


def issued(world, issuer, name, *, own_key):
    """Return a context with a certificate that the key of one party issued, in the name of another."""
    key = private(world.key(own_key)) if own_key else ec.generate_private_key(ec.SECP384R1())
    authority = x509.load_pem_x509_certificate(pinned_certificate(private(issuer).public_key()))
    now = datetime.datetime.now(datetime.UTC)
    leaf = (
        x509.CertificateBuilder().subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(authority.subject).public_key(key.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(1)).not_valid_after(now + datetime.timedelta(9))
        .add_extension(x509.BasicConstraints(False, None), True).sign(private(issuer), SHA384())
    )  # fmt: skip
    context = ssl.create_default_context(cadata=world.authority)
    file = world.folder / "leaf.pem"
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(text + leaf.public_bytes(serialization.Encoding.PEM))
    context.load_cert_chain(file)
    return context


class TestIdentity:
    def test_no_header_changes_who_a_connection_belongs_to(self, here):
        """With doubled headers one key acted as every party of a federation."""
        from base64 import b64encode

        forged = [("flwr-public-key", b64encode(here.pem[1]).decode()), ("flwr-public-key", "x")]
        forged += [("fedfactor-party", "south"), ("x-forwarded-for", "10.0.0.1"), ("forwarded", "for=south")]
        assert here.ask("north", headers=[*forged, *heads()], body=b"FORGED")[0] == 204
        assert [(a.client, a.data) for a in here.queues.collect(0.0)] == [("north", b"FORGED")]
        assert here.queues.present() == {"north": "1"}

    @pytest.mark.parametrize("header", wire.OWN)
    def test_doubled_headers_are_refused(self, here, header):
        status, said = here.ask("north", headers=[*heads(), (header, "2")])
        assert (status, header.encode() in said) == (400, True)
        assert here.queues.present() == {}

    @pytest.mark.parametrize("doubled", ["Content-Length: 3\r\nContent-Length: 0", "Content-Length: 3\r\n"
                                         "Transfer-Encoding: chunked"])  # fmt: skip
    def test_a_body_of_two_lengths_is_refused(self, here, doubled):
        line = here.line(here.context("north"))
        text = "".join(f"{name}: {value}\r\n" for name, value in heads())
        line.sendall(f"POST {wire.EXCHANGE} HTTP/1.1\r\nhost: x\r\n{text}{doubled}\r\n\r\nabc".encode())
        assert b" 400 " in line.recv(64)
        assert here.queues.collect(0.0) == []

    def test_a_recorded_connection_cannot_be_replayed(self, here):
        with relay(here.port) as (port, recorded):
            through = Wire(f"127.0.0.1:{port}", here.authority, here.key("north"))
            through.request("POST", wire.EXCHANGE, b"answer", dict(heads()))
            through.close()
        assert [a.data for a in here.queues.collect(1.0)] == [b"answer"]
        with socket.create_connection(("127.0.0.1", here.port), 10) as line:
            line.sendall(bytes(recorded))
            line.settimeout(10)
            with contextlib.suppress(OSError):
                while line.recv(4096):
                    pass
        assert here.queues.collect(0.2) == []

    def test_the_requests_of_one_party_do_not_count_for_another(self, here):
        assert here.ask("south", headers=heads(session="of north"), body=b"answer of north")[0] == 204
        assert [a.client for a in here.queues.collect(0.0)] == ["south"]

    def test_the_certificate_of_another_party_is_of_no_use_without_its_key(self, here, tmp_path):
        other = tmp_path / "north.pem"
        other.write_bytes(pinned_certificate(private(here.key("north")).public_key()))
        with pytest.raises(DataError, match="is not a certificate for the key"):
            present(ssl.create_default_context(), here.key("south"), other)
        # The same by a client of another make, which leaves the check to the server.
        pem = tmp_path / "south.pem"
        pem.write_bytes(private(here.key("south")).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))  # fmt: skip
        spoken = subprocess.run(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{here.port}", "-cert", other, "-key", pem, "-quiet"],
            input=b"GET / HTTP/1.1\r\n\r\n", capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert b"HTTP/1.1" not in spoken.stdout
        assert spoken.returncode != 0

    @pytest.mark.parametrize("own_key", ["", "north"])
    def test_what_a_party_issues_is_not_trusted(self, here, own_key):
        context = issued(here, here.key("north"), "south", own_key=own_key)
        assert refused(here.ask("", headers=heads(), context=context))

    def test_unknown_keys_and_no_certificate_are_refused_in_the_handshake(self, here):
        here.stranger("eve")
        assert refused(here.ask("eve", headers=heads()))
        assert refused(here.ask("", headers=heads(), context=ssl.create_default_context(cadata=here.authority)))
        end = here.wire("eve")
        for _ in range(2):
            with pytest.raises(httpx.TransportError):
                served(end)
        with pytest.raises(TurnedAway, match=wire.UNKNOWN_KEY) as away:
            served(end)
        assert not away.value.passes

    def test_tls_1_2_is_refused_at_both_ends(self, here, tmp_path):
        context = here.context("north")
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
        assert refused(here.ask("north", headers=heads(), context=context))
        with old_server(here) as port, pytest.raises(httpx.ConnectError, match=r"(?i)version|alert"):
            served(Wire(f"127.0.0.1:{port}", here.authority, here.key("north")))

    def test_an_authority_of_an_organisation_vouches_for_certificates_and_not_for_keys(self, tmp_path):
        authority = certificates.make_authority(tmp_path / "hospital", "hospital")
        with world(tmp_path / "fed", authorities=[authority]) as made:
            made.stranger("eve")
            for name, known in (("north", True), ("eve", False)):
                signed = _signed_request(authority, certificate_request(made.key(name), "south"))
                file = tmp_path / f"{name}.crt"
                file.write_bytes(signed + authority.read_bytes())
                end = Wire(made.address, made.authority, made.key(name), file)
                if known:  # under its own name, whatever the certificate says
                    assert served(end)[0]["party"] == "north"
                else:
                    with pytest.raises(TurnedAway, match=wire.UNKNOWN_KEY):
                        served(end)


def _signed_request(authority, request):
    """Issue a certificate for a request, as the authority of an organisation would."""
    asked = x509.load_pem_x509_csr(request)
    signer = serialization.load_pem_private_key(authority.with_name("ca.key").read_bytes(), None)
    builder = certificates._builder(
        asked.subject, x509.load_pem_x509_certificate(authority.read_bytes()).subject, asked, 30
    )
    assert digest(asked.public_key())
    return certificates._sign(builder, signer, authority=False).public_bytes(serialization.Encoding.PEM)


class TestRelays:
    def test_a_party_does_not_speak_to_another_coordinator(self, tmp_path):
        with world(tmp_path / "a") as a, world(tmp_path / "b") as b, relay(b.port) as (port, _):
            with pytest.raises(ForeignServer):
                served(Wire(f"127.0.0.1:{port}", a.authority, a.key("north")))

    def test_a_coordinator_cannot_use_a_party_at_another_one(self, tmp_path):
        """North's key is registered at both; coordinator A forwards to B what north sends to A."""
        with world(tmp_path / "a") as a, world(tmp_path / "b", "south") as b:
            key = private(a.key("north"))
            b.registered[digest(key.public_key())] = "north"
            context = ssl.create_default_context(cadata=b.authority)
            context.load_cert_chain(a.folder / "server.pem", a.folder / "server.key")
            assert refused(b.ask("", headers=heads(), body=b"what north sent to A", context=context))
            assert b.queues.collect(0.0) == []
            assert b.queues.present() == {}


@contextlib.contextmanager
def relay(port):
    """Pass bytes on to a port, and record what goes there."""
    recorded, stop = bytearray(), threading.Event()
    line = socket.create_server(("127.0.0.1", 0))
    line.settimeout(0.2)

    def carry(source, target, record):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if record:
                    recorded.extend(data)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def accept():
        while not stop.is_set():
            with contextlib.suppress(OSError):
                came, _ = line.accept()
                there = socket.create_connection(("127.0.0.1", port))
                threading.Thread(target=carry, args=(came, there, True), daemon=True).start()
                threading.Thread(target=carry, args=(there, came, False), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield line.getsockname()[1], recorded
    stop.set()
    line.close()


@contextlib.contextmanager
def speaking(context, text):
    """Serve one connection over TLS: read a head, and answer with these bytes, again and again if they are a list."""
    line = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                came, _ = line.accept()
                with contextlib.suppress(OSError), context.wrap_socket(came, server_side=True) as secured:
                    secured.recv(65536)
                    for part in text:
                        secured.sendall(part)

    threading.Thread(target=serve, daemon=True).start()
    yield line.getsockname()[1]
    line.close()


def server_side(world):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(world.folder / "server.pem", world.folder / "server.key")
    return context


@contextlib.contextmanager
def old_server(world):
    context = server_side(world)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with speaking(context, [b"HTTP/1.1 204 No Content\r\n\r\n"]) as port:
        yield port


class TestBodies:
    @pytest.mark.parametrize(
        ("more", "status"),
        [
            ([("Content-Length", str(1 << 30))], 413),
            ([("Content-Length", str(wire.SHORT + 1))], 413),
            ([("Content-Encoding", "gzip")], 415),
            ([("Content-Encoding", "br")], 415),
            ([("Transfer-Encoding", "chunked"), ("Content-Length", "")], 400),
            ([("Expect", "nonsense")], 417),
        ],
    )
    def test_what_cannot_be_right_is_not_read(self, here, more, status):
        made = http.client.HTTPSConnection("127.0.0.1", here.port, timeout=10, context=here.context("north"))
        made.putrequest("POST", wire.EXCHANGE)
        for header, value in [*heads(), *more]:
            if value:
                made.putheader(header, value)
        if "Content-Length" not in dict(more):
            made.putheader("Content-Length", "20")
            made.endheaders(gzip.compress(b"")[:20].ljust(20))
        else:
            made.endheaders()
        found = made.getresponse().status
        assert found == status or (status == 400 and found == 411)
        assert here.queues.collect(0.0) == []

    def test_an_honest_answer_of_the_right_length_is_taken(self, here):
        here.queues.send([("south", b"x")], 3 << 20)
        assert here.ask("north", headers=heads(), body=bytes(3 << 20))[0] == 204
        assert len(here.queues.collect(0.0)[0].data) == 3 << 20
        assert here.ask("north", headers=heads(), body=bytes((3 << 20) + 1))[0] in (413, "BrokenPipeError",
                                                                                   "ConnectionResetError")  # fmt: skip

    def test_a_run_does_not_wait_for_an_answer_that_was_too_long(self, here):
        here.ask("north", headers=heads())
        here.queues.send([("north", b"x")], 100)
        ticket = here.queues.of("north").ticket
        for have, arrived in (("", []), ("other", []), (ticket, [b""])):
            with contextlib.suppress(TurnedAway):
                end = here.wire("north")
                reply = end.request("POST", wire.EXCHANGE, bytes(wire.SHORT + 1), dict(heads(have=have)))
                assert reply.status == 413
                end.close()
            assert [a.data for a in here.queues.collect(0.1)] == arrived

    def test_one_body_of_a_party_is_read_at_a_time(self, here):
        """Of sixty unfinished uploads of one key the last one is left, and the party itself can still answer."""
        here.queues.send([("south", b"x")], 4 << 20)
        text = "".join(f"{name}: {value}\r\n" for name, value in heads())
        head = f"POST {wire.EXCHANGE} HTTP/1.1\r\nhost: x\r\n{text}content-length: {4 << 20}\r\n\r\n".encode()
        lines = []
        for _ in range(60):
            line = here.line(here.context("north"))
            line.settimeout(10)
            with contextlib.suppress(OSError):
                line.sendall(head + bytes(1 << 20))
            lines.append(line)
        time.sleep(0.5)
        assert sum(is_open(line) for line in lines) == 1
        assert here.ask("north", headers=heads(), body=b"honest")[0] == 204
        assert [a.data for a in here.queues.collect(1.0)] == [b"honest"]
        for line in lines:
            line.close()

    def test_a_slow_body_is_given_up(self, here, monkeypatch):
        monkeypatch.setattr(wire, "BODY_SECONDS", 0.5)
        line = here.line(here.context("north"))
        text = "".join(f"{name}: {value}\r\n" for name, value in heads())
        line.sendall(f"POST {wire.EXCHANGE} HTTP/1.1\r\nhost: x\r\n{text}content-length: 9\r\n\r\nabc".encode())
        line.settimeout(10)
        assert b" 408 " in line.recv(64)
        assert here.queues.collect(0.0) == []


def is_open(line):
    line.settimeout(0.05)
    try:
        return line.recv(65536) != b""
    except TimeoutError:
        return True
    except OSError:
        return False


class TestConnections:
    def test_half_requests_end_and_a_key_has_few_connections(self, tmp_path):
        with world(tmp_path / "fed", head_seconds=1.0) as made:
            lines = []
            for _ in range(30):
                line = made.line(made.context("north"))
                line.sendall(b"POST /fedfactor/1/exchange HTTP/1.1\r\nhost: ")
                lines.append(line)
            time.sleep(0.3)
            assert sum(is_open(line) for line in lines) <= connection_limits.PER_KEY
            assert made.ask("south", headers=heads())[0] == 204
            time.sleep(2.0)
            assert not any(is_open(line) for line in lines)

    def test_strangers_that_say_nothing_make_room(self, here):
        lines = [socket.create_connection(("127.0.0.1", here.port)) for _ in range(150)]
        time.sleep(connection_limits.TURN + 0.2)
        deadline = time.monotonic() + 20
        found = here.ask("north", headers=heads())
        while found[0] != 204 and time.monotonic() < deadline:  # a party tries again, too
            found = here.ask("north", headers=heads())
        assert found[0] == 204
        assert sum(is_open(line) for line in lines) <= connection_limits.HANDSHAKES
        for line in lines:
            line.close()

    def test_a_party_comes_back_at_once_to_a_server_that_is_flooded_from_many_addresses(self, here):
        assert here.ask("north", headers=heads())[0] == 204
        lines = []
        for number in range(2 * connection_limits.HANDSHAKES):
            where = (f"127.0.{1 + number // 200}.{1 + number % 200}", 0)
            lines.append(socket.create_connection(("127.0.0.1", here.port), source_address=where))
        time.sleep(0.2)  # all places are taken, and nobody has waited long enough to make room
        assert here.ask("north", headers=heads())[0] == 204
        for line in lines:
            line.close()

    def test_a_long_head_is_refused(self, here):
        assert here.ask("north", headers=[*heads(), ("x-long", "y" * 20_000)])[0] in (400, 431)


class TestParty:
    """The server is untrusted: what it sends is bounded before it is read."""

    @pytest.mark.parametrize("declared", [True, False])
    def test_more_than_can_be_right_is_not_read(self, here, declared):
        size = 200 << 20
        head = f"Content-Length: {size}\r\n" if declared else "Connection: close\r\n"
        text = [f"HTTP/1.1 200 OK\r\n{wire.TICKET}: 1\r\n{head}\r\n".encode(), *[bytes(1 << 20)] * 200]
        with speaking(server_side(here), text) as port:
            end = Wire(f"127.0.0.1:{port}", here.authority, here.key("north"), most=1 << 20)
            tracemalloc.start()
            try:
                with pytest.raises(TurnedAway, match="more than the 1048576 bytes") as away:
                    end.request("POST", wire.EXCHANGE, b"", dict(heads()))
                assert tracemalloc.get_traced_memory()[1] < 8 << 20
            finally:
                tracemalloc.stop()
            assert away.value.passes

    def test_compressed_bodies_are_not_unpacked(self, here):
        """597 kB grew to 927 MB at a party."""
        bomb = gzip.compress(bytes(100 << 20), 9)
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n{wire.TICKET}: 1\r\nContent-Length: {len(bomb)}\r\n\r\n"
        with speaking(server_side(here), [head.encode() + bomb]) as port:
            end = Wire(f"127.0.0.1:{port}", here.authority, here.key("north"), most=1 << 30)
            tracemalloc.start()
            try:
                with pytest.raises(TurnedAway, match="encoded body"):
                    end.request("POST", wire.EXCHANGE, b"", dict(heads()))
                assert tracemalloc.get_traced_memory()[1] < 8 << 20
            finally:
                tracemalloc.stop()
