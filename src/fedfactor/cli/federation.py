"""``fedfactor federation`` and the commands of its parties: one file, keys, a server, members, results."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedfactor.cli.console import Debug, console, polite, size
from fedfactor.cli.privacy import LedgerFile
from fedfactor.cli.reading import reads
from fedfactor.core.errors import DataError
from fedfactor.core.files import write_atomic
from fedfactor.core.text import printable
from fedfactor.data.content import Reading

if TYPE_CHECKING:
    from fedfactor.cli.live import Pages

federation = typer.Typer(help="Set up a federation across organisations.", no_args_is_help=True)

Toml = Annotated[Path, typer.Argument(help="The file that all parties agreed on.", show_default=False)]
Server = Annotated[
    Path | None, typer.Option("--folder", help="The server's folder; by default 'server' beside the file.")
]


Page = Annotated[int | None, typer.Option(help="Show a page about it at this port of this machine; 0: any free one.")]
PageAddress = Annotated[
    str, typer.Option(help="Where the page listens; elsewhere than on this machine itself over TLS and with a token.")
]
JsonLogs = Annotated[bool, typer.Option("--json-logs", help="Write logs as one JSON object a line.")]

DAY = 86_400
"""Seconds between two looks at the certificate."""


def told(line: str) -> None:
    """Print what happened, with the time."""
    typer.echo(f"{time.strftime('%H:%M:%S')}  {printable(line)}")


def logs_as_json(wanted: bool) -> None:
    """Let logs be written as JSON, here and by what is started from here."""
    from fedfactor.federation.logs import JSON

    if wanted:
        os.environ[JSON] = "1"


def show_page(pages: Pages, host: str, port: int, folder: Path) -> None:
    """Serve the page, and say where it is."""
    from fedfactor.cli.live import serve_pages

    _, where = serve_pages(pages, host, port, folder)
    typer.echo(f"Page: {where}  (figures for Prometheus: {where}metrics)")


class How(StrEnum):
    """How different columns become one set."""

    same = "same"
    union = "union"
    intersection = "intersection"


@federation.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where federation.toml and server/ go.", show_default=False)],
    address: Annotated[str, typer.Option(help="Where parties reach the server, host:port.")] = "127.0.0.1:8000",
    algorithm: Annotated[str, typer.Option("--algorithm", "-a")] = "PooledNMF",
    rank: Annotated[int, typer.Option("--rank", "-k", help="Number of components.")] = 5,
    rounds: Annotated[int, typer.Option()] = 20,
    name: Annotated[str, typer.Option(help="What the federation is called.")] = "",
    purpose: Annotated[str, typer.Option(help="What it is for.")] = "",
    contact: Annotated[str, typer.Option(help="Whom to ask.")] = "",
    ca: Annotated[
        Path | None, typer.Option(help="Your organisation's CA certificate (with --cert and --cert-key).")
    ] = None,
    cert: Annotated[Path | None, typer.Option(help="The server's certificate, signed by it.")] = None,
    cert_key: Annotated[Path | None, typer.Option(help="Its private key.")] = None,
    debug: Debug = False,
) -> None:
    """Write federation.toml, and a certificate authority and server certificate (or take your organisation's own).

    Example: fedfactor federation init study --address fed.example.org:8000 -k 5
    """
    from fedfactor.federation import setup

    with polite(debug):
        file = setup.found(
            folder, address=address, algorithm=algorithm, rank=rank, rounds=rounds, name=name, purpose=purpose,
            contact=contact, own=setup.own_certificates(ca, cert, cert_key),
        )  # fmt: skip
    typer.echo(f"Wrote {file}, and certificates to {folder / 'server'} (keep that folder to yourself).")
    typer.echo(f"Next: every party makes a key (fedfactor keygen) and a list of columns (fedfactor features); then\n"
               f"  fedfactor federation add {file} NAME.key.pub ...\n"
               f"  fedfactor federation agree {file} NAME.features.json ...")  # fmt: skip


@federation.command()
def add(
    file: Toml,
    parties: Annotated[
        list[str],
        typer.Argument(help="A party's name and its .pub file; or .pub files that are called NAME.key.pub."),
    ],
    vouched: Annotated[
        list[Path] | None, typer.Option("--vouched", help="What a party wrote with fedfactor vouch; may be repeated.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Let parties in: write their public keys into federation.toml.

    Example: fedfactor federation add federation.toml north.key.pub south.key.pub west.key.pub
    """
    from fedfactor.federation import setup
    from fedfactor.federation.terms import Terms

    with polite(debug):
        pairs = setup.named_keys(parties)
        if vouched and len(pairs) > 1:
            raise DataError("--vouched speaks of one party: add the others in another call.")
        terms = Terms.read(file)
        for name, key in pairs:
            terms = setup.admit(file, name, key, vouched or [])
            typer.echo(f"{name} is in. Its key in words, as its keygen said them: {setup.words_of_key(terms, name)}")
    typer.echo(f"{len(terms.names)} parties: {', '.join(terms.names)}.")


@federation.command()
def remove(
    file: Toml,
    name: Annotated[str, typer.Argument(help="The party that leaves for good.")],
    folder: Server = None,
    debug: Debug = False,
) -> None:
    """Let the others go on without a party: at once where the terms allow it, else by a new agreement.

    Example: fedfactor federation remove federation.toml west
    """
    from fedfactor.federation.server import Coordinator
    from fedfactor.federation.setup import dismiss

    with polite(debug):
        place = Coordinator(file, folder)
        if name not in place.terms.names:
            raise DataError(f"{name!r} is not one of the parties ({', '.join(place.terms.names)}).")
        if place.remove(name):
            typer.echo(f"{name} is shut out; the others go on under the same terms, and nobody waits for it.")
            return
        terms = dismiss(file, name)
        place.journal.write("removed", party=name, how="new terms", terms=terms.fingerprint)
    typer.echo(f"{name} is no longer in {file}. The run was made with everybody, so this is a new agreement:\n"
               f"  send {file} to {', '.join(terms.names)}, who compare the words and join with --accept-changes;\n"
               f"  fedfactor serve {file} (again), then fedfactor start {file} --again")  # fmt: skip


Own = Annotated[Path, typer.Argument(help="Your own folder, that fedfactor join made.", show_default=False)]


@federation.command()
def leave(folder: Own, debug: Debug = False) -> None:
    """At a party: leave for good. Joining from this folder is refused from then on.

    Example: fedfactor federation leave north-folder
    """
    from fedfactor.federation.forgetting import leave as go

    with polite(debug):
        go(folder)
    typer.echo(f"You left. Tell the coordinator: fedfactor federation remove federation.toml {folder.resolve().name}\n"
               f"Your rows, factors and what you sent are here yet: fedfactor federation forget {folder}")  # fmt: skip


@federation.command()
def forget(
    folder: Own,
    what: Annotated[
        list[str] | None, typer.Option("--only", help="rows, factors or sent; may be repeated. By default all three.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    debug: Debug = False,
) -> None:
    """At a party: delete the copy of your rows, your factors, and the bytes that you sent.

    What others already have of what you sent they keep: no command here reaches it. The list of what was sent, and the
    count of what was asked, stay.

    Example: fedfactor federation forget north-folder
    """
    from fedfactor.federation import forgetting

    with polite(debug):
        parts = what or list(forgetting.PARTS)
        odd = [part for part in parts if part not in forgetting.PARTS]
        if odd:
            raise DataError(f"--only {odd[0]!r} is not known. It can be {', '.join(forgetting.PARTS)}.")
        if not yes and not typer.confirm(f"Delete {', '.join(parts)} in {folder}? They cannot be brought back."):
            raise typer.Exit(1)
        gone = forgetting.forget(folder, parts)
    typer.echo(
        f"Deleted in {folder}: {', '.join(gone) or 'nothing was there'}. Backups of that disk are yours to delete."
    )


@federation.command()
def worth(
    folder: Own,
    rows: Annotated[
        Path | None,
        typer.Option(help="Rows that took no part; by default those of join --keep-out.", show_default=False),
    ] = None,
    debug: Debug = False,
) -> None:
    """At a party after a run: alone against together, on rows of your own that took no part. Nothing is sent.

    Example: fedfactor federation worth north-folder --rows aside.csv
    """
    from fedfactor.federation.worth import worth as compare

    with polite(debug):
        found = compare(folder, rows)
    typer.echo(found.words())
    used = ", ".join(f"{t}: {100 * share:.0f} %" for t, share in enumerate(found.use))
    typer.echo(f"Of what is explained of them, each common component carries: {used}.")


@federation.command()
def agree(
    file: Toml,
    names: Annotated[list[Path], typer.Argument(help="The parties' lists of columns, from fedfactor features.")],
    how: Annotated[How, typer.Option(help="same columns, all of anybody's, or only those in common.")] = How.same,
    absent: Annotated[
        str, typer.Option(help="With union: what a column that a party lacks is, zero or missing.")
    ] = "zero",
    debug: Debug = False,
) -> None:
    """Agree on columns by name, and write them with their fingerprint into federation.toml.

    Example: fedfactor federation agree federation.toml north.json south.json west.json
    """
    from fedfactor.federation import setup

    with polite(debug):
        terms = setup.agree_on(file, names, how.value, absent)
    typer.echo(f"{len(terms.features)} columns agreed, fingerprint {terms.content['features']['sha256'][:16]}.")


@federation.command()
def units(
    file: Toml,
    table: Annotated[Path, typer.Argument(help="A CSV file: column,low,high,unit.", show_default=False)],
    debug: Debug = False,
) -> None:
    """Declare where cells of columns usually lie, so that other units at one party are found there.

    Example: fedfactor federation units federation.toml units.csv
    """
    from fedfactor.federation.setup import declare_units

    with polite(debug):
        terms = declare_units(file, table)
    typer.echo(
        f"{len(terms.content['units'])} ranges declared. Each party compares them with its own cells, by itself."
    )


@federation.command()
@reads(prepares=False, marks_missing=False)
def check(
    file: Toml,
    key: Annotated[Path | None, typer.Option(help="At a party: your private key.", show_default=False)] = None,
    data: Annotated[
        Path | None, typer.Option(help="At a party: your rows. They stay here.", show_default=False)
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Your own folder, or the server's.", show_default=False)] = None,
    debug: Debug = False,
    *,
    reading: Callable[..., Reading],
) -> None:
    """Look before a run, or during one, at all that may be wrong; with --key at a party, else at the coordinator.

    Of your rows nothing is sent. Ends with 3 when something is wrong.

    Example: fedfactor federation check federation.toml --key north.key --data rows.csv
    """
    from rich.table import Table
    from rich.text import Text

    from fedfactor.federation.member import Member
    from fedfactor.federation.preflight import check_coordinator, check_party
    from fedfactor.federation.server import Coordinator

    with polite(debug):
        if key is not None:
            lines = check_party(Member(file, key, folder), data, reading())
        else:
            lines = check_coordinator(Coordinator(file, folder))
    shown = Table("", "checked", "found", "what to do", box=None, pad_edge=False)
    for line in lines:
        mark = {"ok": "ok", "note": "note", "wrong": "WRONG"}[line.state]
        style = {"ok": "green", "note": "yellow", "wrong": "bold red"}[line.state]
        shown.add_row(Text(mark, style), Text(line.what), Text(printable(line.found)), Text(printable(line.remedy)))
    console().print(shown)
    if any(line.state == "wrong" for line in lines):
        raise typer.Exit(3)


@federation.command()
def show(file: Toml, debug: Debug = False) -> None:
    """Say what a federation.toml asks of you, and its fingerprint; with the words of each party's key.

    Example: fedfactor federation show federation.toml
    """
    from fedfactor.federation.setup import keys_in_words, words
    from fedfactor.federation.terms import Terms

    with polite(debug):
        terms = Terms.read(file)
        typer.echo(words(terms))
        typer.echo("Keys, as each party's keygen said them:\n" + keys_in_words(terms))


@federation.command()
def certify(file: Toml, folder: Server = None, debug: Debug = False) -> None:
    """Renew the server's certificate with the same authority; parties need nothing new.

    Example: fedfactor federation certify federation.toml
    """
    from fedfactor.federation import certificates
    from fedfactor.federation.server import Coordinator

    with polite(debug):
        place = Coordinator(file, folder)
        made = certificates.make_server_certificate(place.folder, [place.terms.address[0]])
    typer.echo(f"{made} is good until {certificates.expires(made):%Y-%m-%d}. Start fedfactor serve again.")


@federation.command(name="try")
def attempt(
    folder: Annotated[Path, typer.Argument(help="A new folder for everything.", show_default=False)],
    data: Annotated[
        list[Path] | None, typer.Option("--data", help="One file per party; invented rows by default.")
    ] = None,
    algorithm: Annotated[str, typer.Option("--algorithm", "-a")] = "PooledNMF",
    rank: Annotated[int, typer.Option("--rank", "-k")] = 4,
    rounds: Annotated[int, typer.Option()] = 5,
    minutes: Annotated[float, typer.Option(help="Give up after so long.")] = 10.0,
    parties: Annotated[int, typer.Option(min=2, help="How many, with invented rows; many share processes.")] = 3,
    debug: Debug = False,
) -> None:
    """Run a whole federation on this machine: real processes, TLS, keys, three parties or more.

    Example: fedfactor federation try trial
    """
    from fedfactor.federation.setup import try_out

    with polite(debug):
        try_out(folder, data or [], algorithm, rank, rounds, minutes * 60, typer.echo, parties)


def keygen(
    name: Annotated[str, typer.Argument(help="Your party's name.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="By default NAME.key.", show_default=False)] = None,
    debug: Debug = False,
) -> None:
    """Make your key: NAME.key stays with you, NAME.key.pub goes to the coordinator.

    Example: fedfactor keygen north
    """
    from fedfactor.federation.fingerprint import key_words
    from fedfactor.federation.keys import make_key
    from fedfactor.federation.vouching import read_public

    with polite(debug):
        path = make_key(out or Path(f"{name}.key"), name)
        said = key_words(name, read_public(f"{path}.pub"))
    typer.echo(f"{path} is your private key: keep it. Send {path}.pub to the coordinator.")
    typer.echo(f"In words, for a party that is to vouch for you: {said}")


def vouch(
    file: Toml,
    name: Annotated[str, typer.Argument(help="The new party's name.")],
    public: Annotated[Path, typer.Argument(help="Its public key, the .pub file.")],
    key: Annotated[Path, typer.Option(help="Your own private key.", show_default=False)],
    fingerprint: Annotated[
        str, typer.Option("--fingerprint", help="The words that the new party told you itself.", show_default=False)
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="By default NAME.vouched.")] = None,
    debug: Debug = False,
) -> None:
    """Vouch for a new party's key, so that those who know yours need not call it: sign its name and key with yours.

    Example: fedfactor vouch federation.toml south south.key.pub --key north.key
    """
    from fedfactor.federation.fingerprint import key_words
    from fedfactor.federation.terms import Terms
    from fedfactor.federation.vouching import read_public
    from fedfactor.federation.vouching import vouch as sign

    with polite(debug):
        right = key_words(name, read_public(public))
        question = f"Did {name} itself, and not the coordinator, tell you these words?"
        if not _compared(right, fingerprint, question):
            raise typer.Exit(1)
        line = sign(Terms.read(file), name, public, key)
        path = write_atomic(out or Path(f"{name}.vouched"), (line + "\n").encode(), mode=0o644)
    typer.echo(f"{path}: send it to the coordinator, for fedfactor federation add --vouched.")


def _compared(right: str, given: str, question: str) -> bool:
    """Tell whether words were compared with people: typed, or confirmed at a terminal. A plain --yes is no answer."""
    from fedfactor.federation.fingerprint import same_words
    from fedfactor.federation.terms import TermsError

    if given:
        if not same_words(given, right):
            raise TermsError(
                f"The words that you were told are not those of this file ({right}). Somebody holds another one: send "
                "nothing, and find out who."
            )
        return True
    if not sys.stdin.isatty():
        raise TermsError(f'This needs a person. Give the words that others told you: --fingerprint "WORDS". {question}')
    typer.echo(f"\n  {right}\n")
    return typer.confirm(question)


@reads(prepares=False)
def features(
    data: Annotated[
        Path, typer.Argument(help="Your data file; only its column names are written.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="By default NAME.features.json.")] = None,
    debug: Debug = False,
    *,
    reading: Callable[..., Reading],
) -> None:
    """Write your column names, and nothing else, to a file for the coordinator.

    Example: fedfactor features rows.csv -o north.json
    """
    from fedfactor.data.io import owner_name
    from fedfactor.federation.features import column_names, write_names

    with polite(debug):
        names = column_names(data, reading())
        path = write_names(out or Path(f"{owner_name(data)}.features.json"), names)
    typer.echo(f"{path}: {len(names)} names. Look at it before you send it.")


def serve(
    file: Toml,
    folder: Server = None,
    begin: Annotated[bool, typer.Option("--start", help="Start a run (or let one go on) as soon as it is up.")] = False,
    page: Page = None,
    page_address: PageAddress = "127.0.0.1",
    json_logs: JsonLogs = False,
    debug: Debug = False,
) -> None:
    """Serve the federation until interrupted: TLS, and only parties whose keys are in the file.

    Example: fedfactor serve federation.toml
    """
    from fedfactor.cli.live import server_pages
    from fedfactor.federation.logs import both
    from fedfactor.federation.member import stop_on_signals
    from fedfactor.federation.server import Coordinator
    from fedfactor.federation.watch import ServerWatch

    stop = threading.Event()
    with polite(debug):
        place = Coordinator(file, folder)
        stop_on_signals(stop)
        logs_as_json(json_logs)
        try:
            place.serve()
            say = both(told, place.folder / "events.log")
            if page is not None:
                show_page(server_pages(place), page_address, page, place.folder)
            address = place.terms.content["server"]["address"]
            typer.echo(f"Serving {len(place.terms.names)} parties at {address}. Interrupt to end; logs: {place.log}")
            if begin:
                try:
                    place.start()
                except DataError as error:  # a finished run is no reason not to serve
                    say(str(error))
            watch, seconds = ServerWatch(place), 0
            while not stop.wait(1.0):
                place.check()
                if seconds % DAY == 0 and (warning := place.certificate_warning()):
                    say(f"Warning: {warning}.")
                if seconds % 3 == 0:
                    place.look()
                for line in watch.news():
                    say(line)
                seconds += 1
        finally:
            place.close()


@reads(prepares=False, marks_missing=False)
def join(
    file: Toml,
    data: Annotated[Path, typer.Option(help="Your rows. They stay here.", show_default=False)],
    key: Annotated[Path, typer.Option(help="Your private key.", show_default=False)],
    folder: Annotated[
        Path | None, typer.Option(help="Your own folder; by default your name.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="You have read the terms and agree.")] = False,
    fingerprint: Annotated[
        str,
        typer.Option(
            "--fingerprint",
            help="The words that the other parties read to you, not the coordinator.",
            show_default=False,
        ),
    ] = "",
    accept_changes: Annotated[bool, typer.Option("--accept-changes", help="Agree to terms that changed.")] = False,
    replace_data: Annotated[bool, typer.Option("--replace-data", help="Begin anew with other rows.")] = False,
    ledger: LedgerFile = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            help="With noise: ε that your rows may cost in all runs together; by default that of the first one.",
            show_default=False,
        ),
    ] = None,
    keep_out: Annotated[
        float, typer.Option(help="Share of your rows that take no part, for fedfactor federation worth.")
    ] = 0.0,
    poll: Annotated[float, typer.Option(help="Most seconds between two looks for mail.")] = 0.5,
    patience: Annotated[float, typer.Option(help="Seconds to go on trying when the server turns you away.")] = 60.0,
    supernode: Annotated[
        bool,
        typer.Option("--supernode", help="Speak to the server through a SuperNode of Flower's: twice the memory."),
    ] = False,
    page: Page = None,
    page_address: PageAddress = "127.0.0.1",
    json_logs: JsonLogs = False,
    debug: Debug = False,
    *,
    reading: Callable[..., Reading],
) -> None:
    """Take part until interrupted. Shows the terms first, and asks.

    Example: fedfactor join federation.toml --data rows.csv --key north.key
    """
    from fedfactor.cli.live import party_pages
    from fedfactor.federation.forgetting import forget_old, has_left
    from fedfactor.federation.logs import both
    from fedfactor.federation.member import Member, stop_on_signals
    from fedfactor.federation.setup import words

    with polite(debug):
        member = Member(file, key, folder)
        if when := has_left(member.folder):
            raise DataError(f"{member.folder} left the federation for good, {when}. Join from another folder.")
        typer.echo(words(member.terms))
        if not yes and not typer.confirm(f"Take part as {member.name} on these terms?"):
            raise typer.Exit(1)
        unknown = member.unknown()
        confirmed = bool(fingerprint or unknown) and _compared(
            member.words,
            fingerprint,
            f"Have you compared these words with {', '.join(unknown)}, by telephone or face to face? (Without that, "
            "the coordinator may hold keys of its own in their place, and read what you send alone.)",
        )
        seat = member.sign_up(
            data, accept_changes=accept_changes, replace_data=replace_data, confirmed=confirmed, reading=reading(),
            keep_out=keep_out, ledger=ledger, budget=budget,
        )  # fmt: skip
        for line in filter(None, (seat.left(), seat.spent())):
            typer.echo(printable(line))
        stop = threading.Event()
        stop_on_signals(stop)
        address = member.terms.content["server"]["address"]
        rows = seat.shard.n_rows
        typer.echo(f"{member.name}: {rows} rows; connecting to {address}. Interrupt to leave; come back any time.")
        logs_as_json(json_logs)
        forget_old(member.folder, member.terms.keep)
        if page is not None:
            show_page(party_pages(member.folder), page_address, page, member.folder)
        say = both(told, member.folder / "events.log")
        member.join(seat, poll=poll, stop=stop, patience=patience, say=say, supernode=supernode)


def start(
    file: Toml,
    folder: Server = None,
    again: Annotated[bool, typer.Option("--again", help="Forget the last run and start another.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --again: also one that goes on, or that could still go on.")
    ] = False,
    wait: Annotated[float, typer.Option(help="Wait so many seconds for its end.")] = 0.0,
    debug: Debug = False,
) -> None:
    """Start a run, or let an interrupted one go on. On the server's machine, while fedfactor serve is running.

    Example: fedfactor start federation.toml --wait
    """
    from fedfactor.federation.server import Coordinator, UnsureError

    with polite(debug):
        place = Coordinator(file, folder)
        try:
            place.start(again=again, sure=yes)
        except UnsureError as unsure:
            if not sys.stdin.isatty():
                raise DataError(f"{unsure} Say --yes if you mean it.") from None
            if not typer.confirm(f"{unsure} Forget it?"):
                raise typer.Exit(1) from None
            place.start(again=again, sure=True)
        typer.echo(f"Started. See: fedfactor status {file}")
        if wait:
            ended = place.wait(wait)
            typer.echo(f"{ended['state']}: {ended.get('reason', '')}")
            if ended["state"] != "finished":
                raise typer.Exit(3)


def status(
    place: Annotated[
        Path, typer.Argument(help="federation.toml (at the server) or your own folder.", show_default=False)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Everything, for programs.")] = False,
    debug: Debug = False,
) -> None:
    """Say where a run stands: who is connected, rounds, who is in, error, bytes, refusals, privacy spent.

    Ends with 3 when something is to be done: not connected, not served, paused, failed or interrupted.

    Example: fedfactor status federation.toml
    """
    from fedfactor.federation.outcome import status_of

    with polite(debug):
        about = status_of(place)
    if as_json:
        typer.echo(json.dumps(about, indent=1))
    else:
        screen = console()
        for key, value in about.items():
            if value not in (None, "", [], {}):
                shown = size(value) if key.startswith("bytes") else value
                if isinstance(shown, list):
                    shown = ", ".join(map(str, shown))
                elif isinstance(shown, dict):
                    shown = "; ".join(f"{name}: {part}" for name, part in shown.items())
                screen.print(f"{key.replace('_', ' '):13} {printable(shown)}", markup=False)
    calls = (about["state"].startswith(("paused", "failed", "interrupted")),
             about.get("connection", "").startswith("NOT"), about.get("served", "").startswith("NO"))  # fmt: skip
    if any(calls):
        raise typer.Exit(3)


def stop(file: Toml, folder: Server = None, debug: Debug = False) -> None:
    """Ask the run to end after the present round; every party keeps what was reached.

    Example: fedfactor stop federation.toml
    """
    from fedfactor.federation.server import Coordinator

    with polite(debug):
        Coordinator(file, folder).stop()
    typer.echo("The run will end after the present round.")


def results(
    place: Annotated[
        Path, typer.Argument(help="Your own folder, or federation.toml at the server.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.", show_default=False)],
    run: Annotated[str, typer.Option("--run", help="Of this run; by default the last one that ended.")] = "",
    debug: Debug = False,
) -> None:
    """Write what you may have: V and the record of the run, and at a party its own U. As fedfactor fit does.

    Example: fedfactor results federation.toml -o out
    """
    from fedfactor.cli.export import write_tables
    from fedfactor.cli.report import write_report
    from fedfactor.data.results import has_results
    from fedfactor.federation.outcome import folder_of, write_result

    with polite(debug):
        if has_results(out):
            raise DataError(f"{out} already holds results. Choose another folder with -o.")
        write_result(folder_of(place), out, run)
        tables = write_tables(out)
        page = write_report(out)
    typer.echo(f"Results are in {out}. Open {page.name} in a browser, or the tables in a spreadsheet: "
               f"{', '.join(str(table.relative_to(out)) for table in tables)}.")  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add all of these to the command."""
    from fedfactor.cli import dossier  # noqa: F401 (it adds itself to the commands above)

    app.add_typer(federation, name="federation")
    for command in (keygen, vouch, features, serve, join, start, status, stop, results):
        app.command()(command)
