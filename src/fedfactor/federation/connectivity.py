"""Whether the server can be reached, and why not: address, port, certificate and clock, in plain words.

Both ends ask the same questions with the same function, so that coordinator and party read the same reason.
"""

from __future__ import annotations

import json
import socket
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from fedfactor.network.connection_status import CONNECTION
from fedfactor.network.https.protocol import OTHER_TERMS, SECOND_PROCESS, UNKNOWN_KEY, VERSIONS

SOON = 30
"""Days before its end at which a certificate is spoken of."""

APART = 300.0
"""Seconds by which two clocks may differ before that is reported: certificates have dates, and so have limits."""

SILENT = 90.0
"""Seconds after which a node that wrote nothing down is taken for stuck; it does so every few seconds."""

CERTIFY = "fedfactor federation certify federation.toml, and start fedfactor serve again"


@dataclass(frozen=True, slots=True)
class Reached:
    """What a try to reach the server found.

    Parameters
    ----------
    problem : str
        What is wrong, in words; empty when the server answered.
    remedy : str
        What to do about it.
    days : float, optional
        Days that the server's certificate is still good.
    ahead : float, optional
        Seconds by which this machine's clock is ahead of the server's; good to a second.
    foreign : bool
        Whether the certificate is of another authority: another party may be there.
    """

    problem: str = ""
    remedy: str = ""
    days: float | None = None
    ahead: float | None = None
    foreign: bool = False

    def warnings(self) -> list[str]:
        """Return what will go wrong soon."""
        said: list[str] = []
        if self.days is not None and self.days < SOON:
            said.append(f"the server's certificate ends in {self.days:.0f} days. At the coordinator: {CERTIFY}")
        clock = clock_words(self.ahead)
        return [*said, clock] if clock else said


def clock_words(ahead: float | None) -> str:
    """Return a warning if this machine's clock and the server's differ; nothing while that does no harm.

    Examples
    --------
    >>> clock_words(1.0)
    ''
    >>> clock_words(900.0)
    "this machine's clock is 900 s ahead of the server's: let both follow a time server (NTP)"
    """
    if ahead is None or abs(ahead) < APART:
        return ""
    where = f"{ahead:.0f} s ahead of" if ahead > 0 else f"{-ahead:.0f} s behind"
    return f"this machine's clock is {where} the server's: let both follow a time server (NTP)"


def probe(host: str, port: int, authority: str, timeout: float = 5.0) -> Reached:
    """Connect to the server without a key: look its name up, connect, and look at its certificate."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        context = ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError):
        return Reached("[server] certificate is no certificate", "ask for federation.toml again")
    try:
        with (
            socket.create_connection((host, port), timeout) as line,
            context.wrap_socket(line, server_hostname=host) as secured,
        ):
            days = _days_left(secured.getpeercert() or {})
    except (OSError, UnicodeError) as error:  # a name too long for DNS is the latter
        return explain(error, where)
    return Reached(days=days)


def clock_ahead(date: str) -> float | None:
    """Return by how many seconds this machine's clock is ahead of the date that a server sent."""
    try:
        return time.time() - parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return None


def explain(error: BaseException | str, where: str) -> Reached:
    """Turn what went wrong into words, and into what to do."""
    text = str(error).lower()
    if VERSIONS.lower() in text or "only nodes may speak" in text:  # the latter is what version 0.2 answers
        return Reached(
            "the server and this party have versions of fedfactor that do not understand each other",
            "install the same version at the coordinator and at all parties; terms, keys and folders stay",
        )
    if UNKNOWN_KEY.lower() in text:
        return Reached("the server does not know this key: it is not registered, or was removed", "ask the coordinator")
    if OTHER_TERMS.lower() in text:
        served = str(error).rpartition(" ")[2]
        return Reached(
            f"the agreement changed: the server serves other terms (fingerprint {served}) than you agreed to, and asks "
            "you nothing",
            "read what changed, which fedfactor join prints, and consent with fedfactor accept FOLDER; join goes on by "
            "itself (or, if your file is the newer one, ask the coordinator to start fedfactor serve again)",
        )
    if SECOND_PROCESS.lower() in text:
        return Reached(
            "the server takes this party for present already",
            "end the other fedfactor join with this key, or wait: one that was killed is forgotten after half a minute",
        )
    if "expired" in text:
        return Reached("the server's certificate has expired", f"at the coordinator: {CERTIFY}")
    if "not yet valid" in text:
        return Reached("the server's certificate is not valid yet", "compare this machine's clock with the server's")
    if "mismatch" in text or "not valid for" in text:
        return Reached(
            f"the server's certificate is not made out for {where.rpartition(':')[0]}",
            f"at the coordinator, with the right [server] address: {CERTIFY}",
        )
    if "certificate" in text:
        return Reached(
            "the server's certificate is not the one that federation.toml names",
            "ask the coordinator which file is right, and send nothing until you know",
            foreign=True,
        )
    if isinstance(error, ssl.SSLError) or "ssl" in text or "wrong version" in text:
        return Reached(f"what answers at {where} does not speak TLS", "check [server] address")
    if isinstance(error, socket.gaierror | UnicodeError) or "name or service" in text or "name resolution" in text:
        return Reached(f"the name in {where} is not known here", "check the address, and this machine's DNS")
    if "refused" in text:
        return Reached(f"nothing listens at {where}", "ask the coordinator whether fedfactor serve is running")
    if isinstance(error, TimeoutError) or "timed out" in text or "timeout" in text:
        return Reached(f"nothing answers at {where}", "check the firewalls between here and there, and HTTPS_PROXY")
    return Reached(f"{where} cannot be reached ({str(error)[:200]})", "check address, network and firewall")


@dataclass(frozen=True, slots=True)
class Connection:
    """How a party's last request to the server went, as its node wrote it down."""

    connected: bool
    time: float
    since: float
    error: str = ""

    @classmethod
    def of(cls, folder: Path) -> Connection | None:
        """Read it; None before the first request."""
        try:
            raw: dict[str, Any] = json.loads((folder / CONNECTION).read_bytes())
            return cls(bool(raw["connected"]), float(raw["time"]), float(raw["since"]), str(raw["error"]))
        except (OSError, ValueError, KeyError):
            return None

    def words(self, where: str) -> str:
        """Return it in one line."""
        if self.connected and time.time() - self.time > SILENT:
            return f"NOT connected: no request went through since {moment(self.time)}. What to do: join again"
        if self.connected:
            return f"connected to {where} since {moment(self.since)}"
        found = explain(self.error, where)
        return f"NOT connected since {moment(self.since)}: {found.problem}. What to do: {found.remedy}"


def moment(seconds: float) -> str:
    """Write a time for people everywhere: in UTC, and saying so."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _days_left(certificate: Any) -> float | None:
    end = certificate.get("notAfter")
    return None if end is None else (ssl.cert_time_to_seconds(end) - time.time()) / 86400
