"""``fedfactor federation`` and the commands of its parties: one file, keys, a server, members, results."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfactor.cli.console import Debug, console, polite, size
from fedfactor.cli.reading import reads
from fedfactor.core.errors import DataError
from fedfactor.core.files import write_atomic
from fedfactor.core.text import printable
from fedfactor.data.content import Reading

federation = typer.Typer(help="Set up a federation across organisations.", no_args_is_help=True)

Toml = Annotated[Path, typer.Argument(help="The file that all parties agreed on.", show_default=False)]
Server = Annotated[
    Path | None, typer.Option("--folder", help="The server's folder; by default 'server' beside the file.")
]


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
    """Write federation.toml, and a certificate authority and server certificate (or take your organisation's own)."""
    from fedfactor.federation import setup

    with polite(debug):
        file = setup.found(
            folder, address=address, algorithm=algorithm, rank=rank, rounds=rounds, name=name, purpose=purpose,
            contact=contact, own=setup.own_certificates(ca, cert, cert_key),
        )  # fmt: skip
    typer.echo(f"Wrote {file}, and certificates to {folder / 'server'} (keep that folder to yourself).")
    typer.echo(f"Next: every party makes a key (fedfactor keygen) and a list of columns (fedfactor features); then\n"
               f"  fedfactor federation add {file} NAME NAME.key.pub\n"
               f"  fedfactor federation agree {file} NAME.features.json ...")  # fmt: skip


@federation.command()
def add(
    file: Toml,
    name: Annotated[str, typer.Argument(help="The party's name.")],
    key: Annotated[Path, typer.Argument(help="Its public key, the .pub file.")],
    vouched: Annotated[
        list[Path] | None, typer.Option("--vouched", help="What a party wrote with fedfactor vouch; may be repeated.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Let a party in: write its public key into federation.toml."""
    from fedfactor.federation import setup

    with polite(debug):
        terms = setup.admit(file, name, key, vouched or [])
    typer.echo(f"{name} is in; {len(terms.names)} parties: {', '.join(terms.names)}.")


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
    """Agree on columns by name, and write them with their fingerprint into federation.toml."""
    from fedfactor.federation import setup

    with polite(debug):
        terms = setup.agree_on(file, names, how.value, absent)
    typer.echo(f"{len(terms.features)} columns agreed, fingerprint {terms.content['features']['sha256'][:16]}.")


@federation.command()
def show(file: Toml, debug: Debug = False) -> None:
    """Say what a federation.toml asks of you, and its fingerprint; with the words of each party's key."""
    from fedfactor.federation.setup import keys_in_words, words
    from fedfactor.federation.terms import Terms

    with polite(debug):
        terms = Terms.read(file)
        typer.echo(words(terms))
        typer.echo("Keys, as each party's keygen said them:\n" + keys_in_words(terms))


@federation.command()
def certify(file: Toml, folder: Server = None, debug: Debug = False) -> None:
    """Renew the server's certificate with the same authority; parties need nothing new."""
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
    debug: Debug = False,
) -> None:
    """Run a whole federation on this machine: real processes, TLS, keys, three parties."""
    from fedfactor.federation.setup import try_out

    with polite(debug):
        try_out(folder, data or [], algorithm, rank, rounds, minutes * 60, typer.echo)


def keygen(
    name: Annotated[str, typer.Argument(help="Your party's name.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="By default NAME.key.", show_default=False)] = None,
    debug: Debug = False,
) -> None:
    """Make your key: NAME.key stays with you, NAME.key.pub goes to the coordinator."""
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
    """Vouch for a new party's key, so that those who know yours need not call it: sign its name and key with yours."""
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
    """Write your column names, and nothing else, to a file for the coordinator."""
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
    debug: Debug = False,
) -> None:
    """Serve the federation until interrupted: TLS, and only parties whose keys are in the file."""
    from fedfactor.federation.member import stop_on_signals
    from fedfactor.federation.server import Coordinator

    stop = threading.Event()
    with polite(debug):
        place = Coordinator(file, folder)
        stop_on_signals(stop)
        try:
            place.serve()
            address = place.terms.content["server"]["address"]
            typer.echo(f"Serving {len(place.terms.names)} parties at {address}. Interrupt to end; logs: {place.log}")
            if begin:
                place.start()
            while not stop.wait(1.0):
                place.check()
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
    poll: Annotated[float, typer.Option(help="Most seconds between two looks for mail.")] = 0.5,
    patience: Annotated[float, typer.Option(help="Seconds to go on trying when the server turns you away.")] = 60.0,
    debug: Debug = False,
    *,
    reading: Callable[..., Reading],
) -> None:
    """Take part until interrupted. Shows the terms first, and asks."""
    from fedfactor.federation.member import Member, stop_on_signals
    from fedfactor.federation.setup import words

    with polite(debug):
        member = Member(file, key, folder)
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
            data, accept_changes=accept_changes, replace_data=replace_data, confirmed=confirmed, reading=reading()
        )
        typer.echo(printable(seat.left()))
        stop = threading.Event()
        stop_on_signals(stop)
        address = member.terms.content["server"]["address"]
        typer.echo(f"{member.name}: {seat.shard.n_rows} rows at {address}. Interrupt to leave; come back any time.")
        member.join(seat, poll=poll, stop=stop, patience=patience)


def start(
    file: Toml,
    folder: Server = None,
    again: Annotated[bool, typer.Option("--again", help="Forget the finished run and start another.")] = False,
    wait: Annotated[float, typer.Option(help="Wait so many seconds for its end.")] = 0.0,
    debug: Debug = False,
) -> None:
    """Start a run, or let an interrupted one go on. On the server's machine, while fedfactor serve is running."""
    from fedfactor.federation.server import Coordinator

    with polite(debug):
        place = Coordinator(file, folder)
        place.start(again=again)
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
    """Say where a run stands: rounds, who is in, who dropped out, error, bytes, what was refused, privacy spent."""
    from fedfactor.federation.outcome import client_status, folder_of, is_server

    with polite(debug):
        folder = folder_of(place)
        about: dict[str, Any] = server_status(folder) if is_server(folder) else client_status(folder)
    if as_json:
        typer.echo(json.dumps(about, indent=1))
        return
    screen = console()
    for key, value in about.items():
        if value not in (None, "", [], {}):
            shown = size(value) if key.startswith("bytes") else value
            if isinstance(shown, list):
                shown = ", ".join(map(str, shown))
            elif isinstance(shown, dict):
                shown = "; ".join(f"{name}: {part}" for name, part in shown.items())
            screen.print(f"{key.replace('_', ' '):13} {printable(shown)}", markup=False)


def server_status(folder: Path) -> dict[str, Any]:
    """Order what the server knows for people."""
    file = folder / "status.json"
    if not file.exists():
        return {"state": "no run was started yet"}
    raw: dict[str, Any] = json.loads(file.read_bytes())
    away = sorted(set(raw["clients"]) - set(raw["participants"])) if raw["participants"] else []
    return {
        "state": raw["state"], "reason": raw.get("reason", ""), "round": f"{raw['round']} of {raw['rounds']}",
        "took_part": raw["participants"], "away": away, "waiting_for": sorted(set(raw["clients"]) - set(
            raw.get("answered", raw.get("present", raw["clients"])))),
        "metrics": raw["metrics"], "bytes_up": raw["bytes_up"], "bytes_down": raw["bytes_down"],
        "rejected": {key: n for key, n in raw["rejected"].items() if " " not in key}, "last_said": raw["reasons"],
        "privacy": _privacy(folder),
    }  # fmt: skip


def _privacy(folder: Path) -> str:
    """Say what protects uploads, and what was spent."""
    protect = json.loads((folder / "agreement.json").read_bytes())["protect"]
    whose = "only sums of all parties" if protect == "secure-sum" else "each party's sums"
    return f"{protect}: the server sees {whose}; no noise, so epsilon is infinite"


def stop(file: Toml, folder: Server = None, debug: Debug = False) -> None:
    """Ask the run to end after the present round; every party keeps what was reached."""
    from fedfactor.federation.server import Coordinator

    with polite(debug):
        Coordinator(file, folder).stop()
    typer.echo("The run will end after the present round.")


def results(
    place: Annotated[
        Path, typer.Argument(help="Your own folder, or federation.toml at the server.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.", show_default=False)],
    debug: Debug = False,
) -> None:
    """Write what you may have: V and the record of the run, and at a party its own U. As fedfactor fit does."""
    from fedfactor.data.results import has_results
    from fedfactor.federation.outcome import folder_of, write_result

    with polite(debug):
        if has_results(out):
            raise DataError(f"{out} already holds results. Choose another folder with -o.")
        write_result(folder_of(place), out)
    typer.echo(f"Results are in {out}. Look at them with: fedfactor info {out}")


def register(app: typer.Typer) -> None:
    """Add all of these to the command."""
    from fedfactor.cli import dossier  # noqa: F401 (it adds itself to the commands above)

    app.add_typer(federation, name="federation")
    for command in (keygen, vouch, features, serve, join, start, status, stop, results):
        app.command()(command)
