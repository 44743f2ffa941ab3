"""The page of a federation that runs: the same that ``serve`` and ``join`` print, in a browser, and for Prometheus.

One page without scripts, served from this machine. Elsewhere than on this machine's own address it takes TLS and a
token in its path.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import os
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import typer

from fedfactor.cli.console import size
from fedfactor.cli.prometheus_metrics import party_metrics, server_metrics
from fedfactor.core.printable_text import printable
from fedfactor.federation import certificates
from fedfactor.federation.connectivity import moment
from fedfactor.federation.coordinator import Coordinator
from fedfactor.federation.logs import JSON, as_object
from fedfactor.federation.results import client_status, server_status
from fedfactor.network.client_storage import ClientFolder

SHOWN = 20
"""Lines of each table, newest first."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"

Pages = Mapping[str, tuple[str, Callable[[], str]]]

HEALTH = ("healthz", "readyz")
"""Names under which programs ask whether the process works, and whether it can do its task: 200 or 503, without
authentication,
because the answer holds nothing else."""


def told(line: str) -> None:
    """Print what happened, with the time; as a JSON object where logs are written as JSON."""
    if os.environ.get(JSON):
        typer.echo(as_object(line))
        return
    typer.echo(f"{time.strftime('%H:%M:%S')}  {printable(line)}")


def logs_as_json(wanted: bool) -> None:
    """Let logs be written as JSON, here and by what is started from here."""
    if wanted:
        os.environ[JSON] = "1"


def show_page(pages: Pages, host: str, port: int, folder: Path) -> None:
    """Serve the page, and say where it is."""
    _, where = serve_pages(pages, host, port, folder)
    typer.echo(f"Page: {where}  (figures for Prometheus: {where}metrics)")


def party_pages(folder: Path) -> Pages:
    """Make a party's page, its figures for Prometheus, and everything as JSON."""
    return {
        "": ("text/html; charset=utf-8", lambda: _party(folder)),
        "metrics": ("text/plain; version=0.0.4; charset=utf-8", lambda: party_metrics(folder)),
        "status.json": ("application/json", lambda: json.dumps(client_status(folder))),
        "healthz": ("text/plain", lambda: "ok\n"),
        "readyz": ("text/plain", lambda: _holds(client_status(folder)["connected"])),
    }


def server_pages(place: Coordinator) -> Pages:
    """Make the coordinator's page, its figures for Prometheus, and everything as JSON."""
    return {
        "": ("text/html; charset=utf-8", lambda: _server(place)),
        "metrics": ("text/plain; version=0.0.4; charset=utf-8", lambda: server_metrics(place)),
        "status.json": ("application/json", lambda: json.dumps(server_status(place))),
        "healthz": ("text/plain", lambda: _holds(place.served)),
        "readyz": ("text/plain", lambda: _holds(place.ready)),
    }


def _holds(good: bool) -> str:
    if not good:
        raise RuntimeError
    return "ok\n"


def serve_pages(pages: Pages, host: str, port: int, folder: Path) -> tuple[ThreadingHTTPServer, str]:
    """Serve pages until the server is shut down; return it and the address of the page.

    On an address of this machine to itself nothing more is asked. On any other the page speaks TLS, with a certificate
    made in ``page/`` of the folder, and its path begins with a token that is made again each time.
    """
    here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    token = "" if here else secrets.token_urlsafe(24)
    served = ThreadingHTTPServer((host, port), _handler(pages, token, here))
    served.daemon_threads = True
    if not here:
        made = folder / "page"
        certificates.make_authority(made, "page")
        certificates.make_server_certificate(made, [host])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made / "server.pem", made / "server.key")
        served.socket = context.wrap_socket(served.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    shown = f"[{host}]" if ":" in host else host
    return served, f"{'http' if here else 'https'}://{shown}:{served.server_address[1]}/{token}{'/' if token else ''}"


def _handler(pages: Pages, token: str, here: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            """Hand out a page to who may have it."""
            first, _, rest = self.path.partition("?")[0].strip("/").partition("/")
            if token:
                given = self.headers.get("Authorization", "").removeprefix("Bearer ") or first
                right = hmac.compare_digest(given.encode(), token.encode())
                name = rest if first == given else first
            else:
                right = self._asked_for_here()
                name = first
            if first in HEALTH:
                right = True
                name = first
            if not right or name not in pages:
                self.send_error(404 if right else 403)
                return
            kind, make = pages[name]
            try:
                body = make().encode("utf-8", "replace")
            except Exception as error:  # a file that is just being replaced: the next look finds it
                self.send_error(503, explain=type(error).__name__)
                return
            self.send_response(200)
            heads = {
                "Content-Type": kind,
                "Content-Length": str(len(body)),
                "Cache-Control": "no-store",
                "Content-Security-Policy": POLICY,
                "Referrer-Policy": "no-referrer",
                "X-Content-Type-Options": "nosniff",
            }
            for key, value in heads.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def _asked_for_here(self) -> bool:
            """Refuse other names than this machine's own: a page elsewhere may have its name lead here."""
            name = self.headers.get("Host", "").rpartition(":")[0].strip("[]") if here else ""
            return name in ("127.0.0.1", "localhost", "::1")

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: a page that renews itself would fill a log."""

    return Handler


def _fill(title: str, lede: str, sections: Iterable[tuple[str, str]]) -> str:
    template = Template((resources.files("fedfactor.cli") / "live_page.html").read_text(encoding="utf-8"))
    body = "\n".join(f"<section><h2>{escape(head)}</h2>{text}</section>" for head, text in sections if text)
    return template.substitute(title=_text(title), lede=lede, body=body, now=moment(time.time()))


def _text(value: Any) -> str:
    return escape(printable(str(value)))


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>' if body else ""
    )


def _state(good: bool, words: str) -> str:
    return f'<span class="{"good" if good else "bad"}">{_text(words)}</span>'


def _bar(done: int, of: int) -> str:
    said = f"{done} of {of} rounds"
    return f'<progress max="{max(of, 1)}" value="{done}" aria-label="rounds">{said}</progress><p>{said}</p>'


def _party(folder: Path) -> str:
    about = client_status(folder)
    store = ClientFolder(folder)
    sent = store.sent()
    lede = _state(about["connected"], about["connection"])
    newest = list(reversed(sent))[:SHOWN]
    all_of_it = f"<p>{len(sent)} messages, {size(about['bytes_sent'])} in all; the bytes are in sent/.</p>"
    refused = [line for line in reversed(sent) if line["kind"] == "refusal"][:SHOWN]
    return _fill(
        f"{about['party']} in its federation",
        lede,
        [
            (
                "The run",
                _bar(about["rounds"], store.agreement.rounds) + f"<p>{_text(about['state'])}</p>"
                if about["run"]
                else "<p>Nothing was asked yet.</p>",
            ),
            ("What is left of what you agreed to", f"<p>{_text(about['left'])}</p>"),
            (
                "What left this house",
                all_of_it
                + _table(
                    ("time", "run", "what", "round", "bytes"),
                    (
                        (s["time"], s["run"][:8], s["kind"], s["index"] + (s["kind"] == "step"), s["bytes"])
                        for s in newest
                    ),
                ),
            ),
            (
                "What was refused, and why (the server learns only that it was refused)",
                _table(("time", "why"), ((line["time"], line.get("reason", "")) for line in refused)),
            ),
            ("Results here", f"<p>{_text(', '.join(about['results']))}</p>" if about["results"] else ""),
            ("Terms", f"<p>fingerprint {_text(about['terms'])}</p>"),
        ],
    )


def _server(place: Coordinator) -> str:
    about = server_status(place)
    raw = place.status()
    there = place.presence()
    parties = "".join(
        f"<tr><td>{_text(name)}</td><td>{_state(online, 'connected' if online else 'not connected')}</td>"
        f"<td>{_text(since[:19])}</td><td>{_text(raw.get('reasons', {}).get(name, ''))}</td></tr>"
        for name, (online, since) in there.items()
    )
    head = "<tr><th>party</th><th></th><th>last came (UTC)</th><th>last said</th></tr>"
    shown = f'<div class="scroll"><table>{head}{parties}</table></div>'
    why = about.get("reason", "")
    going = about["state"] not in ("failed", "paused", "interrupted")
    error = raw.get("metrics", {}).get("relative_error")
    figures = [
        ("relative error", f"{error:.4f}" if isinstance(error, float) else ""),
        ("seconds of the last round", about.get("seconds", "")),
        ("came up", size(about.get("bytes_up", 0))),
        ("went down", size(about.get("bytes_down", 0))),
        ("took part in the last round", ", ".join(about.get("took_part", []))),
        ("waiting for", ", ".join(about.get("waiting_for", []))),
        ("rejected", "; ".join(f"{k}: {n}" for k, n in about.get("rejected", {}).items())),
        ("privacy", about.get("privacy", "")),
    ]
    lede = _state(place.served, f"served at {about['address']}" if place.served else "NOT served")
    return _fill(
        place.terms.content["federation"]["name"] or "A federation",
        lede,
        [
            ("Parties", shown if parties else "<p>No party was seen yet.</p>"),
            (
                "The run",
                f"<p>{_state(going, about['state'])} {_text(why)}</p><p>{_text(about['advice'])}</p>"
                + (_bar(raw["round"], raw["rounds"]) if "round" in raw else "")
                + _table(("", ""), ((name, value) for name, value in figures if value not in ("", 0))),
            ),
            (
                "Who did what here",
                _table(
                    ("time", "by", "what"),
                    ((line["time"], line["by"], _deed(line)) for line in list(reversed(place.journal.lines()))[:SHOWN]),
                ),
            ),
            ("Terms", f"<p>fingerprint {_text(place.terms.fingerprint)}</p>"),
        ],
    )


def _deed(line: Mapping[str, Any]) -> str:
    more = {key: value for key, value in line.items() if key not in ("time", "by", "deed", "terms", "parties")}
    return " ".join([line["deed"], *(f"{key}: {value}" for key, value in more.items() if value)])
