"""The commands of a party: its key and columns, taking part, leaving, and what it had of it."""

from __future__ import annotations

import functools
import json
import secrets
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedfactor.cli.console import Debug, polite
from fedfactor.cli.privacy import LedgerFile
from fedfactor.cli.reading_options import reads
from fedfactor.cli.shared_options import JsonLogs, Page, PageAddress, Split, Toml
from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.errors import DataError
from fedfactor.core.printable_text import printable
from fedfactor.io.file_content import Reading

if TYPE_CHECKING:
    from fedfactor.federation.enrolment import Enrolled
    from fedfactor.federation.party import Member

Own = Annotated[Path, typer.Argument(help="Your own folder, that fedfactor join made.", show_default=False)]
JoinFolder = Annotated[
    list[Path] | None, typer.Option(help="Your own folder; by default your name.", show_default=False)
]
ToldWords = Annotated[
    str,
    typer.Option(
        "--fingerprint", help="The words that the other parties read to you, not the coordinator.", show_default=False
    ),
]
RowsBudget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        help="With noise: ε that your rows may cost in all runs together; by default that of the first one.",
        show_default=False,
    ),
]
RaiseBudget = Annotated[
    bool, typer.Option("--raise-budget", help="It was decided that --budget may be more than it was before.")
]
KeepOut = Annotated[float, typer.Option(help="Share of your rows that take no part, for fedfactor federation worth.")]
AgreeOnly = Annotated[
    bool,
    typer.Option("--agree-only", help="Agree, prepare the folder, and end: a SuperNode of Flower answers from it."),
]
Certificate = Annotated[
    Path | None,
    typer.Option(
        help="Certificate for your key by your organisation's authority; by default one is made of the key.",
        show_default=False,
    ),
]


KeepSent = Annotated[
    int,
    typer.Option(
        min=0,
        help="Days after which the bytes that were sent in earlier runs are deleted, where the terms have no other "
        "number; 0: never. The list of what was sent stays.",
    ),
]
RowKey = Annotated[
    Path | None,
    typer.Option(
        help="With --split columns: the key that the parties share, and the coordinator never gets; made if missing.",
        show_default=False,
    ),
]
RowSecret = Annotated[
    Path | None,
    typer.Option(
        help="With --split columns, instead of --row-key: your own secret, which no other party gets; made if missing.",
        show_default=False,
    ),
]
RowNames = Annotated[
    list[Path] | None,
    typer.Option(help="Where parties hold columns: NAME.row-names.json of fedfactor features.", show_default=False),
]


def keygen(
    name: Annotated[str, typer.Argument(help="Your party's name.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="By default NAME.key.", show_default=False)] = None,
    passphrase: Annotated[
        bool,
        typer.Option(
            "--passphrase",
            help="Encrypt the key: asks for a passphrase, or reads it from the file FEDFACTOR_KEY_PASSPHRASE_FILE.",
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """Make your key: NAME.key stays with you, NAME.key.pub goes to the coordinator.

    Example: fedfactor keygen north
    """
    from fedfactor.federation.fingerprint_words import key_words
    from fedfactor.federation.keys import make_key
    from fedfactor.federation.terms import check_party_name
    from fedfactor.federation.vouching import read_public
    from fedfactor.network.key_file import new_passphrase

    with polite(debug):
        check_party_name(name)
        path = make_key(out or Path(f"{name}.key"), name, new_passphrase() if passphrase else b"")
        said = key_words(name, read_public(f"{path}.pub"))
    typer.echo(f"{path} is your private key: keep it. Send {path}.pub to the coordinator.")
    typer.echo(f"In words, for the coordinator and for who vouches for you: {said}")


def request(
    key: Annotated[Path, typer.Argument(help="Your private key.", show_default=False)],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="By default KEY.csr.", show_default=False)] = None,
    debug: Debug = False,
) -> None:
    """Write a signing request for your key, where your organisation's authority shall issue your certificate.

    Only needed if your organisation asks for it: without one, a certificate is derived from your key. The coordinator
    then has to trust that authority (fedfactor serve --party-authority).

    Example: fedfactor federation request north.key
    """
    from fedfactor.federation.keys import line_of_private
    from fedfactor.network.https.identity import certificate_request

    with polite(debug):
        line_of_private(key)  # which explains what is wrong with a file that is no key
        path = write_atomic(out or Path(f"{key}.csr"), certificate_request(key, key.stem), mode=0o644)
    typer.echo(f"{path}: have it signed, and give the certificate to fedfactor join --certificate.")


def vouch(
    file: Toml,
    name: Annotated[str, typer.Argument(help="The new party's name.")],
    public: Annotated[Path, typer.Argument(help="Its public key, the .pub file.")],
    key: Annotated[Path, typer.Option(help="Your own private key.", show_default=False)],
    fingerprint: Annotated[
        str,
        typer.Option(
            "--fingerprint", help="The words that you received from the new party itself.", show_default=False
        ),
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="By default NAME.vouched.")] = None,
    debug: Debug = False,
) -> None:
    """Vouch for a new party's key, so that those who know yours need not call it: sign its name and key with yours.

    Example: fedfactor vouch federation.toml south south.key.pub --key north.key
    """
    from fedfactor.federation.fingerprint_words import key_words
    from fedfactor.federation.terms import Terms
    from fedfactor.federation.vouching import read_public
    from fedfactor.federation.vouching import vouch as sign

    with polite(debug):
        right = key_words(name, read_public(public))
        question = f"Did you receive these words from {name} itself, and not from the coordinator?"
        if not _compared(right, fingerprint, question):
            raise typer.Exit(1)
        line = sign(Terms.read(file), name, public, key)
        path = write_atomic(out or Path(f"{name}.vouched"), (line + "\n").encode(), mode=0o644)
    typer.echo(f"{path}: send it to the coordinator, for fedfactor federation add --vouched.")


def _compared(right: str, given: str, question: str) -> bool:
    """Return whether words were compared with people: typed, or confirmed at a terminal. A plain --yes is no answer."""
    from fedfactor.federation.fingerprint_words import same_words
    from fedfactor.federation.terms import TermsError

    if given:
        if not same_words(given, right):
            raise TermsError(
                "The words of --fingerprint are not those of this file: the other party holds a different file, or "
                "a word was misheard. Send nothing, ask for the words again, and if they differ still, find out "
                "who holds which file. They are not shown here: words that are copied from here compare nothing."
            )
        return True
    if not sys.stdin.isatty():
        raise TermsError(
            f'This needs a person. Give the words that you received from the others: --fingerprint "WORDS". {question}'
        )
    typer.echo(f"\n  {right}\n")
    return typer.confirm(question)


@reads(prepares=False)
def features(
    data: Annotated[
        Path, typer.Argument(help="Your data file; only its column names are written.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="By default NAME.features.json.")] = None,
    split: Annotated[Split, typer.Option(help="What parties hold: rows, or columns of the same rows.")] = Split.rows,
    row_key: RowKey = None,
    secret: RowSecret = None,
    blinded: Annotated[
        Path | None,
        typer.Option(help="With --secret: your own list after all parties have blinded it.", show_default=False),
    ] = None,
    debug: Debug = False,
    *,
    reading: Callable[..., Reading],
) -> None:
    """Write your column names, and nothing else, to a file for the coordinator.

    With --split columns, hashes of your row ids: under a key that the parties share (--row-key), or as points that all
    parties blind (--secret, then fedfactor federation blind at each of the others, then --blinded). NAME.row-names.json
    then stays with you, for fedfactor join --row-names.

    Examples: fedfactor features rows.csv -o north.json;
    fedfactor features lab.csv --split columns --id patient_id --row-key shared.key
    """
    from fedfactor.federation import features as agreed
    from fedfactor.io.read import owner_name

    with polite(debug):
        target = out or Path(f"{owner_name(data)}.features.json")
        own = target.with_name(f"{owner_name(data)}.row-names.json")
        if split is Split.rows:
            names = agreed.column_names(data, reading())
        elif row_key is not None and secret is None:
            rows = agreed.hashed_rows(data, reading(), _secret_of(row_key))
            write_atomic(own, json.dumps(rows).encode(), mode=0o600)
            names = tuple(sorted(rows.values()))
        elif secret is not None and row_key is None:
            if blinded is None:
                names = tuple(agreed.blinded_rows(data, reading(), _secret_of(secret)))
            else:
                names = agreed.read_names(blinded)
                write_atomic(
                    own, json.dumps(agreed.row_names(data, reading(), names, _secret_of(secret))).encode(), mode=0o600
                )
        else:
            raise DataError("--split columns needs either --row-key, a key that the parties share, or --secret.")
        path = agreed.write_names(target, names)
    typer.echo(f"{path}: {len(names)} names. Look at it before you send it.")
    if own.exists() and split is Split.columns:
        typer.echo(f"{own} stays with you: give it to fedfactor join --row-names.")


def blind(
    names: Annotated[Path, typer.Argument(help="The list of another party, from fedfactor features --secret.")],
    secret: Annotated[Path, typer.Option(help="Your own secret, as for your own list.", show_default=False)],
    debug: Debug = False,
) -> None:
    """Blind the list of row ids of another party with your secret; its order is kept.

    When each party has done so once to each list, equal names are equal ids, and no party can compare them with guesses
    without the secrets of all parties.

    Example: fedfactor federation blind lab.features.json --secret clinic.secret
    """
    from fedfactor.federation import features as agreed

    with polite(debug):
        found = agreed.blind_again(agreed.read_names(names), _secret_of(secret))
        agreed.write_names(names, found)
    typer.echo(f"{names}: {len(found)} ids blinded. Send it to the next party, at last to its owner.")


def _secret_of(file: Path) -> bytes:
    """Read a secret of 32 bytes, or make one."""
    if not file.exists():
        write_atomic(file, secrets.token_bytes(32), mode=0o600)
        typer.echo(f"{file}: a new secret. The party that has it can test guesses of ids: not for the coordinator.")
    found = file.read_bytes()
    if len(found) != 32:
        raise DataError(f"{file} holds {len(found)} bytes, not the 32 of a secret. Give another file: one is made.")
    return found


@reads(prepares=False, marks_missing=False)
def accept(
    place: Annotated[
        Path, typer.Argument(help="The invitation; or your own folder, to consent to other terms.", show_default=False)
    ],
    data: Annotated[Path | None, typer.Option(help="Your rows. They stay here.", show_default=False)] = None,
    key: Annotated[
        Path | None, typer.Option(help="Your private key; by default NAME.key, which is made.", show_default=False)
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Your own folder; by default your name.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="You have read the terms and agree.")] = False,
    fingerprint: ToldWords = "",
    debug: Debug = False,
    *,
    reading: Callable[..., Reading],
) -> None:
    """Accept an invitation, or terms that changed while fedfactor join waits.

    With an invitation: shows the draft of the terms, compares its words with those that the coordinator reads to you,
    makes your key, and writes NAME.accepted (public key and column names) for the coordinator. Nothing is sent.

    Example: fedfactor accept north.invite --data rows.csv
    """
    from fedfactor.federation import enrolment
    from fedfactor.federation.party import Member
    from fedfactor.federation.setup import words
    from fedfactor.federation.terms import Terms

    with polite(debug):
        if place.is_dir():
            offered = enrolment.proposed(place)
            if not (place / "signed.json").exists():
                typer.echo(words(offered, spoken=not fingerprint))
            enrolment.consent(place, offered, _agrees(Member.offered(place, offered), yes, fingerprint))
            typer.echo("Agreed. The waiting fedfactor join goes on.")
            return
        if data is None:
            raise DataError("Give your rows with --data: their column names are part of your reply.")
        invitation = enrolment.read_invitation(place)
        typer.echo(words(Terms.of(invitation["terms"]), spoken=False))
        typer.echo(f"Invited      {', '.join(invitation['invited'])}; you are {invitation['party']}")
        question = "Did the coordinator itself read these words of the invitation to you?"
        if not _compared(enrolment.invitation_words(invitation), fingerprint, question):
            raise typer.Exit(1)
        reply, said = enrolment.accept(place, data, key, folder, reading())
    typer.echo(f"{reply}: your public key and column names. Send it to the coordinator, and read these words: {said}")
    typer.echo("Then: fedfactor join")


@reads(prepares=False, marks_missing=False)
def join(
    place: Annotated[
        Path, typer.Argument(help="federation.toml, or the folder that fedfactor accept made.", show_default=False)
    ] = Path(),
    data: Annotated[list[Path] | None, typer.Option(help="Your rows. They stay here.", show_default=False)] = None,
    key: Annotated[list[Path] | None, typer.Option(help="Your private key.", show_default=False)] = None,
    folder: JoinFolder = None,
    row_names: RowNames = None,
    yes: Annotated[bool, typer.Option("--yes", help="You have read the terms and agree.")] = False,
    fingerprint: ToldWords = "",
    accept_changes: Annotated[bool, typer.Option("--accept-changes", help="Agree to terms that changed.")] = False,
    replace_data: Annotated[bool, typer.Option("--replace-data", help="Begin again with other rows.")] = False,
    ledger: LedgerFile = None,
    budget: RowsBudget = None,
    raise_budget: RaiseBudget = False,
    keep_out: KeepOut = 0.0,
    keep_sent: KeepSent = 90,
    certificate: Certificate = None,
    agree_only: AgreeOnly = False,
    page: Page = None,
    page_address: PageAddress = "127.0.0.1",
    json_logs: JsonLogs = False,
    debug: Debug = False,
    *,
    reading: Callable[..., Reading],
) -> None:
    """Take part until interrupted. Shows the terms first, and asks.

    After fedfactor accept it needs no more than the folder, and waits for the terms. Several parties of one
    organisation share a process, and its memory: give --data and --key, and --folder if at all, once for each.

    Examples: fedfactor join
    fedfactor join federation.toml --data rows.csv --key north.key
    """
    from fedfactor.cli.live_page import logs_as_json, party_pages, show_page, told
    from fedfactor.federation.data_deletion import forget_old
    from fedfactor.federation.party import Member, stop_on_signals, together
    from fedfactor.federation.setup import words

    with polite(debug):
        logs_as_json(json_logs)
        files, keys, folders = data or [], key or [], folder or [None] * len(key or [])
        named: Any = row_names or [None] * max(1, len(keys))
        read = reading()
        if place.is_dir():
            enrolled, yes, fingerprint = _enrolled(place, key, yes, fingerprint, certificate)
            place = enrolled.file
            files = data or [enrolled.data]
            keys = [enrolled.key]
            folders = [enrolled.folder]
            read = enrolled.reading() if read == Reading() else read
            accept_changes = accept_changes or (enrolled.folder / "signed.json").exists()
        if not len(files) == len(keys) == len(folders) > 0:
            raise DataError("Give --data, --key and --folder once for each party, in the same order.")
        if len(named) != len(keys):
            raise DataError("Give --row-names once for each party, in the same order as --data.")
        if len(keys) > 1 and (certificate is not None or page is not None or ledger is not None):
            raise DataError("--certificate, --page and --ledger are for one party. Leave them out, or join each alone.")

        def sign(number: int, confirmed: bool | None) -> tuple[Member, Any]:
            """Sign the terms as they are in the file now; those that were consented to already without asking."""
            member = Member(place, keys[number], folders[number])
            if confirmed is None:
                if not number:
                    typer.echo(words(member.terms, spoken=not fingerprint))
                    typer.echo(member.terms.notice)
                confirmed = _agrees(member, yes, fingerprint)
            own = read if named[number] is None else replace(read, row_names=str(named[number]))
            wishes = {"reading": own, "keep_out": keep_out, "ledger": ledger, "budget": budget}
            wishes |= {"accept_changes": accept_changes or repeated, "replace_data": replace_data}
            return member, _sign_up(member, files[number], confirmed, keep_sent, raise_budget=raise_budget, **wishes)

        repeated = False
        seats = [(*sign(number, None), number) for number in range(len(keys))]
        if agree_only:
            for member, _, _ in seats:
                where = f'folder="{member.folder.resolve()}" key="{member.key.resolve()}"'
                typer.echo(f"{member.name}: start the SuperNode with --node-config '{where}'")
            return
        repeated = True
        address = seats[0][0].terms.content["server"]["address"]
        for member, seat, _ in seats:
            count = seat.shard.n_rows
            kind = "columns" if member.terms.by_columns else "rows"
            typer.echo(
                f"{member.name}: {count} {kind}; connecting to {address}. Interrupt to leave; come back any time."
            )
        stop = threading.Event()
        stop_on_signals(stop)
        if page is not None:
            show_page(party_pages(seats[0][0].folder), page_address, page, seats[0][0].folder)

        def take_part(member: Member, seat: Any, number: int) -> None:
            lines = _lines_of(member, alone=len(keys) == 1)

            def say(line: str) -> None:
                lines(line)
                if getattr(line, "event", "") == "run ended":
                    forget_old(member.folder, member.terms.keep, keep_sent)

            while (confirmed := member.join(seat, stop=stop, say=say, certificate=certificate)) is not None:
                member, seat = sign(number, confirmed)
                say("Taking part on the terms that were consented to.")

        if len(seats) == 1:
            take_part(*seats[0])
        else:
            together([functools.partial(take_part, *seat) for seat in seats], told)


def _enrolled(
    place: Path, key: list[Path] | None, yes: bool, fingerprint: str, certificate: Path | None
) -> tuple[Enrolled, bool, str]:
    """Wait for the terms of a party that accepted an invitation; return whether it agreed to them by that, too."""
    from fedfactor.cli.live_page import told
    from fedfactor.federation import enrolment, terms_writer
    from fedfactor.federation.fingerprint_words import terms_words

    enrolled = enrolment.Enrolled(place)
    if key:
        enrolled.use_key(key[0])
    terms = enrolment.wait_for_terms(enrolled, told, certificate)
    signed = enrolled.folder / "signed.json"
    before = json.loads(signed.read_bytes())["terms"] if signed.exists() else None
    if before == terms.content or (before is None and enrolled.expected(terms)):
        terms_writer.save(enrolled.file, terms.content)
        return enrolled, True, fingerprint
    if sys.stdin.isatty() or yes or fingerprint:
        terms_writer.save(enrolled.file, terms.content)
        return enrolled, yes or bool(fingerprint), fingerprint
    write_atomic(enrolled.folder / enrolment.PROPOSED, json.dumps(terms.content).encode())
    told(f"The terms are complete, and their words have to be compared. To consent: fedfactor accept {enrolled.folder}")
    given = enrolment.wait_for_consent(enrolled.folder, terms)
    terms_writer.save(enrolled.file, terms.content)
    return enrolled, True, terms_words(terms.fingerprint) if given else fingerprint


def _sign_up(member: Member, rows: Path, confirmed: bool, keep_sent: int, **wishes: Any) -> Any:
    """Check the party's rows against the terms, and say what takes part; return its seat."""
    from fedfactor.federation.data_deletion import forget_old

    seat = member.sign_up(rows, confirmed=confirmed, **wishes)
    for line in filter(None, (seat.left(), seat.spent())):
        typer.echo(printable(line))
    forget_old(member.folder, member.terms.keep, keep_sent)
    return seat


def _lines_of(member: Member, *, alone: bool) -> Callable[[str], None]:
    """Say where lines about a party go: to its log, and to the screen, with its name where others are there."""
    from fedfactor.cli.live_page import told
    from fedfactor.federation.logs import both

    return both(told if alone else lambda line: told(f"{member.name}: {line}"), member.folder / "events.log")


def _to_ask(member: Member, unknown: list[str]) -> list[str]:
    """Return the parties to telephone: of those in question that are parties, or where only parties left, all the
    others.
    """
    parties = [name for name in member.terms.names if name != member.name]
    return [name for name in unknown if name in parties] or parties


def _agrees(member: Member, yes: bool, fingerprint: str) -> bool:
    """Show what changed and ask; return whether the words of the terms were compared with the other parties."""
    from fedfactor.federation.data_deletion import has_left

    if when := has_left(member.folder):
        raise DataError(f"{member.folder} left the federation for good, {when}. Join from another folder.")
    if changes := member.changes():
        typer.echo("Changed since this party signed up:")
        for change in changes:
            typer.echo(printable(f"  {change}"))
    if not yes and not typer.confirm(f"Take part as {member.name} on these terms?"):
        raise typer.Exit(1)
    unknown = member.unknown()
    return bool(fingerprint or unknown) and _compared(
        member.words,
        fingerprint,
        f"Have you compared these words with {', '.join(_to_ask(member, unknown))}, by telephone or face to face? "
        "(Without that, the coordinator may hold keys of its own in their place, and read what you send alone.)",
    )


def leave(folder: Own, debug: Debug = False) -> None:
    """At a party: leave for good. Joining from this folder is refused from then on.

    Example: fedfactor federation leave north-folder
    """
    from fedfactor.federation.data_deletion import leave as go

    with polite(debug):
        go(folder)
    typer.echo(
        f"You left. Ask the coordinator to run: fedfactor federation remove federation.toml {folder.resolve().name}\n"
        f"Your rows, results and what you sent are here yet: fedfactor federation forget {folder}"
    )


def forget(
    folder: Own,
    what: Annotated[
        list[str] | None,
        typer.Option("--only", help="rows, factors (with all results) or sent; may be repeated. By default all three."),
    ] = None,
    keep_results: Annotated[
        bool, typer.Option("--keep-results", help="Keep your factors, which are the results of your runs.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    debug: Debug = False,
) -> None:
    """At a party: delete the copy of your rows, the bytes you sent, and your factors: the results of all your runs.

    fedfactor results writes those elsewhere before; --keep-results leaves them here, where it finds them afterwards.
    What others already have of what you sent they keep: no command here reaches it. The list of what was sent, and the
    count of what was asked, stay.

    Example: fedfactor federation forget north-folder
    """
    from fedfactor.federation import data_deletion as forgetting

    with polite(debug):
        parts = [part for part in what or forgetting.PARTS if not (keep_results and part == "factors")]
        odd = [part for part in parts if part not in forgetting.PARTS]
        if odd:
            raise DataError(f"--only {odd[0]!r} is not known. It can be {', '.join(forgetting.PARTS)}.")
        typer.echo(f"To be deleted in {folder}: {'; '.join(forgetting.WORDS[part] for part in parts)}.")
        if not yes and not typer.confirm("They cannot be brought back. Delete them?"):
            raise typer.Exit(1)
        gone = forgetting.forget(folder, parts)
    typer.echo(
        f"Deleted in {folder}: {', '.join(gone) or 'nothing was there'}. Backups of that disk are yours to delete."
    )


def worth(
    folder: Own,
    rows: Annotated[
        Path | None,
        typer.Option(help="Rows that took no part; by default those of join --keep-out.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Numbers, for programs.")] = False,
    debug: Debug = False,
) -> None:
    """At a party after a run: alone against together, on rows of your own that took no part. Nothing is sent.

    Example: fedfactor federation worth north-folder --rows aside.csv
    """
    from fedfactor.federation.gain import worth as compare

    with polite(debug):
        found = compare(folder, rows)
    if as_json:
        about = {"rows": found.rows, "joint": found.joint, "alone": found.alone, "use": found.use.tolist()}
        typer.echo(json.dumps(about, indent=1))
        return
    typer.echo(found.words())
    used = ", ".join(f"{t}: {100 * share:.0f} %" for t, share in enumerate(found.use))
    typer.echo(f"Of what is explained of them, each common component carries: {used}.")
