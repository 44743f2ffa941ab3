"""The default transport across networks as sites have them: proxies, load balancers, pass-through, idle timeouts."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("httpx")

from fedfactor.federation import certificates
from fedfactor.federation.processes import free_port
from fedfactor.network.https import client as module
from fedfactor.network.https import protocol as wire
from fedfactor.network.https.client import PartyClient, Wire, served
from tests.network.https_world import SERVED, heads, world

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "nginx"
OTHER = "127.0.0.2"
"""An address of this machine that no rule about loopback names keeps from a proxy."""


@pytest.fixture
def here(tmp_path):
    with world(tmp_path / "fed", host=OTHER) as made:
        yield made


def carry(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for line in (source, target):
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def connect_proxy(idle=60.0):
    """Serve HTTP CONNECT, as the proxy of a site does; end tunnels that are silent for some seconds."""
    asked, line = [], socket.create_server(("127.0.0.1", 0))

    def tunnel(came):
        with contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += came.recv(4096)
            asked.append(head.split(b"\r\n")[0].decode())
            host, _, port = asked[-1].split()[1].rpartition(":")
            there = socket.create_connection((host.strip("[]"), int(port)), 10)
            came.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            there.settimeout(idle)
            threading.Thread(target=carry, args=(came, there), daemon=True).start()
            carry(there, came)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=tunnel, args=(line.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{line.getsockname()[1]}", asked
    line.close()


def test_a_party_goes_through_a_connect_proxy(here, monkeypatch):
    with connect_proxy() as (proxy, asked):
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        end = here.wire("north")
        assert served(end)[0]["party"] == "north"
        assert asked == [f"CONNECT {OTHER}:{here.port} HTTP/1.1"]
        end.close()
        monkeypatch.setenv("NO_PROXY", OTHER)
        assert served(here.wire("north"))[0]["party"] == "north"
        assert len(asked) == 1


def test_requests_are_held_shorter_where_a_proxy_ends_silent_connections(here, tmp_path, monkeypatch):
    """It took three silent cuts for a party to look disconnected."""
    monkeypatch.setattr(module, "LEAST_HOLD", 0.5)

    class Remote:
        def answer(self, data):
            return b"answer"

    with connect_proxy(idle=3.0) as (proxy, asked):
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        stop = threading.Event()
        client = PartyClient(Remote(), here.wire("north"), tmp_path, SERVED)
        serving = threading.Thread(target=lambda: client.serve(lambda: not stop.is_set()), daemon=True)
        serving.start()
        end = time.monotonic() + 30
        while client._hold >= 3.0 and time.monotonic() < end:
            time.sleep(0.1)
        assert 0.5 <= client._hold < 3.0
        tunnels = len(asked)
        time.sleep(5.0)
        assert set(here.queues.present()) == {"north"}
        assert len(asked) - tunnels <= 1  # connections live on
        here.queues.send([("north", b"question")], 100)
        assert [a.data for a in here.queues.collect(10.0)] == [b"answer"]
        stop.set()
        serving.join(10)


@contextlib.contextmanager
def nginx(folder, config, replaced):
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    if not Path(program).exists() or not list(Path("/usr").glob("l*/nginx/modules/ngx_stream_module.so")):
        pytest.skip("nginx with its stream module is not installed")
    text = (DEPLOY / config).read_text()
    for old, new in replaced.items():
        assert old in text, old
        text = text.replace(old, new)
    text = re.sub(r"load_module modules/", "load_module /usr/lib/nginx/modules/", text)
    (folder / "nginx.conf").write_text(f"pid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n{text}")
    process = subprocess.Popen([program, "-c", f"{folder}/nginx.conf", "-g", "daemon off;"], stderr=subprocess.PIPE)
    yield process
    process.terminate()
    process.wait(10)


def until_it_listens(port):
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)


def test_a_tcp_load_balancer_forwards_connections(tmp_path):
    with world(tmp_path / "fed") as made:
        port = free_port()
        ports = {"listen 443;": f"listen 127.0.0.1:{port};", "        listen [::]:443;\n": "",
                 "127.0.0.1:8443;": f"127.0.0.1:{made.port};"}  # fmt: skip
        # The first address in a comment is that of the command.
        with nginx(tmp_path, "forward.conf", ports):
            until_it_listens(port)
            end = Wire(f"127.0.0.1:{port}", made.authority, made.key("north"))
            assert served(end)[0]["party"] == "north"
            end.request("POST", wire.EXCHANGE, b"", dict(heads()))
            made.queues.send([("north", b"question")], 100)
            assert end.request("POST", wire.EXCHANGE, b"", dict(heads())).body == b"question"


def test_tls_is_passed_through_by_its_server_name(tmp_path):
    """Two federations share a port; each client proves its key to the server behind, not to nginx."""
    with world(tmp_path / "fed") as fed, world(tmp_path / "site", host=OTHER) as site:
        port = free_port()
        certificates.make_server_certificate(fed.folder, ["localhost"])
        ports = {"listen 443;": f"listen 127.0.0.1:{port};", "        listen [::]:443;\n": "",
                 "fed.example.org 127.0.0.1:8443;": f"localhost 127.0.0.1:{fed.port};",
                 "127.0.0.1:8444;": f"{OTHER}:{site.port};"}  # fmt: skip
        with nginx(tmp_path, "passthrough.conf", ports):
            until_it_listens(port)
            end = Wire(f"localhost:{port}", fed.authority, fed.key("south"))
            assert served(end)[0]["party"] == "south"
            for _ in range(2):  # without a name in the handshake: the other site, whose certificate is another one's
                with pytest.raises(module.ForeignServer):
                    served(Wire(f"127.0.0.1:{port}", fed.authority, fed.key("south")))
