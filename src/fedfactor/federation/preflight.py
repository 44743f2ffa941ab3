"""Look before a run, and during it, at everything that has gone wrong for others: one line for each thing.

Each line states what was checked, what was found, and what to do if that is wrong. Nothing of the rows is sent: the
only request asks the server, with the party's key, which terms it serves.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedfactor.core.atomic_files import read_json
from fedfactor.core.errors import DataError, FedfactorError
from fedfactor.engines.checkpoint import environment
from fedfactor.federation import certificates
from fedfactor.federation import processes as children
from fedfactor.federation.connectivity import SOON, clock_ahead, clock_words, explain, probe
from fedfactor.federation.coordinator import Coordinator
from fedfactor.federation.fingerprint_words import terms_words
from fedfactor.federation.party import Member
from fedfactor.federation.progress_lines import away_words
from fedfactor.federation.results import from_anywhere, server_results
from fedfactor.federation.row_loading import prepare_rows
from fedfactor.federation.terms import Terms
from fedfactor.io.file_content import Reading

LEAST_DISK = 1 << 30
LEAST_MEMORY = 1 << 28
"""Free bytes of disk and of memory below which a warning is given."""


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was looked at."""

    what: str
    state: Literal["ok", "note", "wrong"]
    found: str
    remedy: str = ""


def check_party_files(
    file: Path, key: Path, folder: Path | None, data: Path | None = None, reading: Reading | None = None
) -> list[Line]:
    """Look at everything that a party needs, as far as its files can be read."""
    try:
        return check_party(Member(file, key, folder), data, reading)
    except FedfactorError as error:
        remedy = f"put the file right, then again: fedfactor federation check {file} --key {key}"
        lines = [Line("files", "wrong", str(error), remedy)]
    with suppress(FedfactorError):  # the file itself may be what is wrong
        terms = Terms.read(file)
        lines += [_terms(terms), *_complete(terms), *_address(terms.address[0])]
        host, port = terms.address
        found = probe(host, port, terms.content["server"]["certificate"])
        lines.append(Line("server", "wrong" if found.problem else "ok", found.problem or "answers", found.remedy))
    return lines


def check_party(member: Member, data: Path | None = None, reading: Reading | None = None) -> list[Line]:
    """Look at everything that a party needs; with a data file also at its columns and units."""
    terms = member.terms
    lines = [_terms(terms), *_complete(terms), _key_file(member.key), _signed(member)]
    where = terms.content["server"]["address"]
    lines += _address(terms.address[0])
    found = member.reach()
    if found.problem:
        lines.append(Line("server", "wrong", found.problem, found.remedy))
    else:
        lines.append(Line("server", "ok", f"{where} answers over TLS, with a certificate of the agreed authority"))
        if found.days is not None:
            lines.append(_days(found.days))
        lines += _knock(member, where)
    if data is not None and terms.features:
        lines.append(_rows(terms, member.name, data, reading))
    return [*lines, *_machine(member.folder if member.folder.exists() else Path.cwd())]


def check_coordinator(place: Coordinator) -> list[Line]:
    """Look at everything that the coordinator needs, whether or not it serves."""
    terms = place.terms
    lines = [_terms(place.terms)]
    try:
        terms.agreement()
        lines.append(Line("agreement", "ok", f"{len(terms.names)} parties, {len(terms.features)} columns"))
    except FedfactorError as error:
        lines.append(Line("agreement", "wrong", str(error), "complete federation.toml"))
    try:
        place.certificate_words()
        end = certificates.expires(place.folder / "server.pem")
        lines.append(_days((end - certificates.now()).total_seconds() / 86400))
    except (FedfactorError, OSError) as error:
        lines.append(Line("certificate", "wrong", str(error), "fedfactor federation certify federation.toml"))
    lines += [_key_file(place.folder / name) for name in ("ca.key", "server.key") if (place.folder / name).exists()]
    lines += _address(terms.address[0])
    lines += _served(place)
    try:
        with from_anywhere(place.folder):
            lines.append(_journal(place))
    except FedfactorError as error:
        lines.append(Line("journal", "wrong", str(error), "restore it from a copy"))
    return [*lines, *_machine(place.folder)]


def _complete(terms: Terms) -> list[Line]:
    """Return what a party's file still lacks; nothing when it is complete."""
    try:
        terms.agreement()
    except FedfactorError as error:
        return [Line("agreement", "wrong", str(error), "ask the coordinator for the complete federation.toml")]
    return []


def _journal(place: Coordinator) -> Line:
    """Compare the journal with the results that lie here: each finished run has its line."""
    deeds = place.journal.lines()
    told = {deed["run"] for deed in deeds if deed["deed"] == "run finished"}
    untold = [run for run in server_results(place.folder) if run not in told]
    if untold:
        return Line(
            "journal",
            "note",
            f"{len(deeds)} deeds, unbroken; but it does not say that run {untold[0]} finished, whose result is here",
            "it was added by hand, or written by an older version",
        )
    return Line("journal", "ok", f"{len(deeds)} deeds, unbroken; {len(told)} finished runs, as the results say")


def _terms(terms: Terms) -> Line:
    return Line("terms", "ok", f"fingerprint {terms.fingerprint[:16]}, in words: {terms_words(terms.fingerprint)}")


def _key_file(path: Path) -> Line:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return Line("key file", "wrong", f"{path} can be read by others (mode {mode:04o})", f"chmod 600 {path}")
    return Line("key file", "ok", f"{path} is yours alone")


def _signed(member: Member) -> Line:
    file = member.folder / "signed.json"
    if not file.exists():
        return Line("agreed to", "note", "nothing yet", "fedfactor join shows the terms and asks")
    changes = member.terms.differences(Terms.of(read_json(file)["terms"]))
    if changes:
        return Line(
            "agreed to",
            "wrong",
            f"other terms: {'; '.join(changes[:3])}",
            "compare, and if you agree join with --accept-changes",
        )
    return Line("agreed to", "ok", "these terms")


def _address(host: str) -> list[Line]:
    try:
        found = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(host, None)})
    except (OSError, UnicodeError) as error:
        return [Line("address", "wrong", f"{host} is not known here ({error})", "check its spelling, and DNS")]
    return [Line("address", "ok", f"{host} is {', '.join(found[:3])}")]


def _days(days: float) -> Line:
    renew = "at the coordinator: fedfactor federation certify federation.toml, then serve again"
    return Line("certificate", "note" if days < SOON else "ok", f"{days:.0f} days left", renew if days < SOON else "")


def _knock(member: Member, where: str) -> list[Line]:
    from fedfactor.network.https.client import REJECTED, served

    end = member.wire()
    try:
        for _ in range(REJECTED - 1):  # a key that is not registered is known from several tries only
            with suppress(httpx_errors()):
                told, date = served(end)
                break
        else:
            told, date = served(end)
    except Exception as error:  # whatever it is, it is what stands between this party and the server
        found = explain(str(error), where)
        return [Line("key", "wrong", found.problem, found.remedy)]
    finally:
        end.close()
    lines = [Line("key", "ok", f"the server knows it as {member.name}'s"), *_clock(clock_ahead(date))]
    if told.get("terms") != member.terms.fingerprint:
        served_terms = str(told.get("terms"))[:16]
        lines.append(
            Line(
                "served terms",
                "wrong",
                f"the server serves others, fingerprint {served_terms}",
                "ask the coordinator for its federation.toml, and compare",
            )
        )
    else:
        lines.append(Line("served terms", "ok", "the server serves these very terms"))
    return [*lines, _versions(told.get("versions", {}))]


def httpx_errors() -> type[Exception]:
    """Return the errors of connections, imported when they are needed."""
    import httpx

    return httpx.TransportError


def _clock(ahead: float | None) -> list[Line]:
    if ahead is None:
        return []
    if apart := clock_words(ahead):
        return [Line("clock", "wrong", apart.partition(":")[0], "let both machines follow a time server (NTP)")]
    return [Line("clock", "ok", f"{ahead:+.0f} s against the server's")]


def _versions(server: dict[str, Any]) -> Line:
    mine = environment(1)
    other = [
        f"{name} {mine[name]} (the server has {server[name]})"
        for name in ("fedfactor", "numpy", "scipy")
        if name in mine and name in server and mine[name] != server[name]
    ]
    if other:
        return Line(
            "versions", "note", "; ".join(other), "install the same at all; results may differ in their last bits"
        )
    return Line(
        "versions", "ok", ", ".join(f"{n} {mine[n]}" for n in ("fedfactor", "numpy") if n in mine) + ", as there"
    )


def _rows(terms: Terms, name: str, data: Path, reading: Reading | None) -> Line:
    try:
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            shard = prepare_rows(data, terms, name, reading)
    except (DataError, ValueError, OSError) as error:
        return Line("rows", "wrong", str(error), "mend the file, or agree on other terms")
    units = terms.content.get("units", {})
    undeclared = "" if units else "; no ranges are declared, so other units would not be seen"
    found = f"{shard.n_rows} rows fit the columns{f' and {len(units)} declared ranges' if units else ''}{undeclared}"
    if noted or not units:
        advice = str(noted[0].message) if noted else "fedfactor federation units federation.toml units.csv"
        return Line("rows", "note", found, advice)
    return Line("rows", "ok", f"{found}; nothing of this is sent")


def _served(place: Coordinator) -> list[Line]:
    host, port = place.terms.address
    if not place.served:
        with socket.socket() as probe_socket:
            busy = probe_socket.connect_ex(("127.0.0.1", port)) == 0
        if busy:
            return [
                Line("port", "wrong", f"another party listens on {port}", "end that process, or choose another port")
            ]
        return [Line("port", "note", f"{port} is free; nothing is served yet", "fedfactor serve federation.toml")]
    lines: list[Line] = []
    if read_json(place.folder / "agreement.json")["terms"] != place.terms.fingerprint:
        lines.append(Line("served terms", "wrong", "federation.toml changed since", "start fedfactor serve again"))
    found = probe(host, port, place.terms.content["server"]["certificate"])
    if found.problem:
        remedy = f"{found.remedy}; or this machine is not reached under its own public name, which can be right"
        lines.append(Line("port", "note", f"from here: {found.problem}", remedy))
    else:
        lines.append(Line("port", "ok", f"{host}:{port} answers"))
    there = place.presence()
    away = [f"{name} ({away_words(since)})" for name, (online, since) in there.items() if not online]
    if away:
        lines.append(Line("parties", "note", f"not connected: {', '.join(away)}", "fedfactor federation check there"))
    else:
        lines.append(Line("parties", "ok", f"connected: {', '.join(there) or 'nobody was seen yet'}"))
    return lines


def _machine(folder: Path) -> list[Line]:
    children.need_federation()
    free = shutil.disk_usage(folder).free
    short = free < LEAST_DISK
    lines = [
        Line(
            "disk",
            "wrong" if short else "ok",
            f"{free >> 20} MB free at {folder}",
            "make room: every message is kept" if short else "",
        )
    ]
    try:
        memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not available on this system
        return lines
    tight = memory < LEAST_MEMORY
    return [
        *lines,
        Line(
            "memory",
            "note" if tight else "ok",
            f"{memory >> 20} MB free",
            "close other programs: NumPy alone needs some 200 MB" if tight else "",
        ),
    ]
