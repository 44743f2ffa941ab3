"""A served federation in this process: a real server with TLS, keys of parties, and raw connections to it."""

from __future__ import annotations

import contextlib
import http.client
import socket
from pathlib import Path

from fedfactor.federation import certificates, keys
from fedfactor.network.https import protocol
from fedfactor.network.https.client import Wire
from fedfactor.network.https.connection_limits import listen
from fedfactor.network.https.identity import client_context, digest_of_pem, server_context
from fedfactor.network.https.party_queues import PartyQueues
from fedfactor.network.https.server import HttpsServer

SERVED = "f" * 64


class World:
    """A server for these parties, with its folder."""

    def __init__(self, folder: Path, names=("north", "south"), host="127.0.0.1", terms=SERVED, **more):
        self.folder, self.host, self.terms = folder, host, terms
        folder.mkdir(parents=True, exist_ok=True)
        certificates.make_authority(folder, folder.name)
        certificates.make_server_certificate(folder, [host])
        self.authority = (folder / "ca.crt").read_text()
        self.registered: dict[str, str] = {}
        self.pem = [self.add(name) for name in names]
        self.authorities = more.pop("authorities", ())
        self.queues = PartyQueues(lambda: set(self.registered.values()))
        context = server_context(folder / "server.pem", folder / "server.key", self.pem, self.authorities)
        about = {"terms": terms, "versions": {}}
        self.server = HttpsServer(self.queues, lambda: self.registered, lambda: about, context, **more)
        sockets = listen(host, 0)
        self.port = sockets[0].getsockname()[1]
        self.server.start(sockets)
        self.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def key(self, name):
        return self.folder / f"{name}.key"

    def stranger(self, name):
        keys.make_key(self.key(name), name)
        return self.key(name)

    def add(self, name):
        pem = keys.public_pem(keys.public_line(f"{self.stranger(name)}.pub"))
        self.registered[digest_of_pem(pem)] = name
        return pem

    def wire(self, name, **more):
        return Wire(self.address, self.authority, self.key(name), **more)

    def context(self, name):
        return client_context(self.authority, self.key(name))

    def line(self, context):
        """Return a TLS connection."""
        plain = socket.create_connection((self.host, self.port), 10)
        return context.wrap_socket(plain, server_hostname=self.host)

    def ask(self, name, path=protocol.EXCHANGE, body=b"", headers=(), context=None):
        """Make a raw request; return status and body, or the kind of error with which the connection ended."""
        made = http.client.HTTPSConnection(self.host, self.port, timeout=10, context=context or self.context(name))
        try:
            made.putrequest("POST" if path != protocol.TERMS_PATH else "GET", path)
            for header, value in headers:
                made.putheader(header, value)
            if "content-length" not in {h.lower() for h, _ in headers}:
                made.putheader("Content-Length", str(len(body)))
            made.endheaders(body)
            reply = made.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__, b""
        finally:
            made.close()

    def close(self):
        self.server.close()


def heads(session="1", terms=SERVED, have="", hold="0.2", after=""):
    return [
        (protocol.SESSION, session),
        (protocol.TERMS, terms),
        (protocol.HAVE, have),
        (protocol.HOLD_FOR, hold),
        (protocol.AFTER, after),
    ]


@contextlib.contextmanager
def world(folder, *names, **more):
    made = World(folder, names or ("north", "south"), **more)
    try:
        yield made
    finally:
        made.close()
