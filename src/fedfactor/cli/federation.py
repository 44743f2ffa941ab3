"""``fedfactor federation``: found one, let parties in and out, agree on columns; and where all its commands are."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedfactor.cli.console import Debug, polite, size
from fedfactor.cli.coordinator import serve, start, stop
from fedfactor.cli.dossier import dossier
from fedfactor.cli.party import accept, blind, features, forget, join, keygen, leave, request, vouch, worth
from fedfactor.cli.privacy import Clip, Colluding, Delta, Epsilon, PublicRows, Subject, Unit, agreed_privacy
from fedfactor.cli.shared_options import Server, Split, Toml
from fedfactor.cli.status import check, results, status
from fedfactor.cli.versions import go_on, versions
from fedfactor.core.errors import DataError
from fedfactor.core.missing_policies import missing_choices
from fedfactor.core.printable_text import printable


class How(StrEnum):
    """How different columns become one set."""

    same = "same"
    union = "union"
    intersection = "intersection"


def init(
    folder: Annotated[Path, typer.Argument(help="Where federation.toml and server/ go.", show_default=False)],
    address: Annotated[str, typer.Option(help="Where parties reach the server, host:port.")] = "127.0.0.1:8000",
    algorithm: Annotated[str, typer.Option("--algorithm", "-a")] = "PooledNMF",
    rank: Annotated[int, typer.Option("--rank", "-k", help="Number of components.")] = 5,
    rounds: Annotated[int, typer.Option()] = 20,
    name: Annotated[str, typer.Option(help="What the federation is called.")] = "",
    purpose: Annotated[str, typer.Option(help="What it is for.")] = "",
    contact: Annotated[str, typer.Option(help="Contact person.")] = "",
    privacy: Annotated[
        str, typer.Option(help="none, secure-sum (the server sees sums of all parties) or dp (sums with noise).")
    ] = "none",
    epsilon: Epsilon = None,
    delta: Delta = None,
    unit: Unit = None,
    row_bound: Annotated[
        float | None, typer.Option(help="With --privacy dp: public bound on the norm of a row.", show_default=False)
    ] = None,
    rows: PublicRows = None,
    clip: Clip = None,
    subject: Subject = None,
    colluding: Colluding = None,
    step: Annotated[
        list[str] | None,
        typer.Option(help="A step of preprocessing, such as log1p or 'scale declared'; may be repeated, in order."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Any other term, SECTION.ENTRY=VALUE such as limits.runs=3, policy.deadline=60 or algorithm.tol=0; "
            "may be repeated.",
        ),
    ] = None,
    missing: Annotated[
        str, typer.Option(help=f"What marks a missing cell: {missing_choices()}; nan marks empty ones too.")
    ] = "none",
    split: Annotated[Split, typer.Option(help="What parties hold: rows, or columns of the same rows.")] = Split.rows,
    ca: Annotated[
        Path | None, typer.Option(help="Your organisation's CA certificate (with --cert and --cert-key).")
    ] = None,
    cert: Annotated[Path | None, typer.Option(help="The server's certificate, signed by it.")] = None,
    cert_key: Annotated[Path | None, typer.Option(help="Its private key.")] = None,
    debug: Debug = False,
) -> None:
    """Write federation.toml, and a certificate authority and server certificate (or take your organisation's own).

    Example: fedfactor federation init study --address fed.example.org:8000 -k 5 --privacy secure-sum
    """
    from fedfactor.federation import setup

    with polite(debug):
        file = setup.found(
            folder,
            address=address,
            algorithm=algorithm,
            rank=rank,
            rounds=rounds,
            name=name,
            purpose=purpose,
            contact=contact,
            own=setup.own_certificates(ca, cert, cert_key),
            steps=step or (),
            missing=missing,
            settings=settings or (),
            split=split.value,
            privacy=agreed_privacy(
                privacy,
                epsilon=epsilon,
                delta=delta,
                unit=unit,
                row_bound=row_bound,
                rows=rows,
                clip=clip,
                subject=subject,
                colluding=colluding,
            ),
        )
    typer.echo(f"Wrote {file}, and certificates to {folder / 'server'} (keep that folder to yourself).")
    typer.echo(
        f"Next: fedfactor federation invite {file} NAME ..., then with what the parties send back\n"
        f"  fedfactor federation add {file} NAME.accepted ..."
    )
    if "scale declared" in (step or ()):
        typer.echo(f"  fedfactor federation units {file} UNITS.csv (the ranges by which columns are scaled)")


def change(
    file: Toml,
    settings: Annotated[
        list[str], typer.Argument(help="SECTION.ENTRY=VALUE, such as limits.runs=20.", show_default=False)
    ],
    debug: Debug = False,
) -> None:
    """Change terms: after fedfactor serve was started again, each waiting party is shown the difference and asked.

    Example: fedfactor federation change federation.toml limits.runs=20 policy.deadline=120
    """
    from fedfactor.federation import setup
    from fedfactor.federation.terms import Terms

    with polite(debug):
        before = Terms.read(file)
        after = setup.change(file, settings)
    for difference in after.differences(before):
        typer.echo(printable(difference))
    typer.echo(f"Start fedfactor serve {file} again. Parties consent with fedfactor accept.")


def invite(
    file: Toml,
    names: Annotated[list[str], typer.Argument(help="The parties' names.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the invitations.")] = Path(),
    debug: Debug = False,
) -> None:
    """Write NAME.invite for each party, to be sent to it, and the words that are to be read to it, by telephone.

    Example: fedfactor federation invite federation.toml north south west
    """
    from fedfactor.federation.enrolment import invite as write

    with polite(debug):
        made = write(file, names, out)
    for name, (path, said) in made.items():
        typer.echo(f"{path}: send it to {name}, and read these words to it by telephone: {said}")


def add(
    file: Toml,
    parties: Annotated[
        list[str],
        typer.Argument(
            help="What invited parties sent back, NAME.accepted; or a party's name and its .pub file; or .pub files "
            "that are called NAME.key.pub."
        ),
    ],
    vouched: Annotated[
        list[Path] | None, typer.Option("--vouched", help="What a party wrote with fedfactor vouch; may be repeated.")
    ] = None,
    reason: Annotated[
        str, typer.Option(help="Where a party gets a new key: why the former one counts no more.", show_default=False)
    ] = "replaced",
    debug: Debug = False,
) -> None:
    """Let parties in: write their public keys into federation.toml, and the columns once all invited parties replied.

    Example: fedfactor federation add federation.toml north.accepted south.accepted west.accepted
    """
    from fedfactor.federation import enrolment, setup
    from fedfactor.federation.terms import Terms

    with polite(debug):
        replies = [Path(word) for word in parties if word.endswith(".accepted")]
        named = [word for word in parties if not word.endswith(".accepted")]
        pairs = setup.named_keys(named) if named else []
        if vouched and len(pairs) + len(replies) > 1:
            raise DataError("--vouched is about one party: add the others in another call.")
        for name, key in pairs:
            setup.admit(file, name, key, vouched or [], reason)
        added = [name for name, _ in pairs] + [enrolment.admit_reply(file, path, vouched or []) for path in replies]
        columns, missing = enrolment.agree_on_replies(file) if replies else (0, [])
        terms = Terms.read(file)
        for name in added:
            typer.echo(f"{name} is in. Its key in words, for the telephone: {setup.words_of_key(terms, name)}")
    typer.echo(f"{len(terms.names)} parties: {', '.join(terms.names)}.")
    if columns:
        typer.echo(f"{columns} columns agreed. Next: fedfactor serve {file}")
    elif missing:
        typer.echo(f"Columns are agreed on when these have replied, too: {', '.join(missing)}.")


def remove(
    file: Toml,
    name: Annotated[str, typer.Argument(help="The party that leaves for good.")],
    refit: Annotated[
        bool, typer.Option("--refit", help="Let the remaining parties run again, from the components of the last run.")
    ] = False,
    certificate: Annotated[
        Path | None,
        typer.Option(help="Write for the party what was done, and what cannot be unsent.", show_default=False),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why, for the list of revoked keys.", show_default=False)] = "left",
    folder: Server = None,
    debug: Debug = False,
) -> None:
    """Let the others go on without a party: at once where the terms allow it, else by a new agreement.

    With --refit always by a new agreement, whose run starts at the last components and ends at those of the remaining
    rows. Under secure aggregation without noise the sums before and after differ by what the party sent: refused,
    unless all parties agreed to that ([privacy] allow = ["removal"]).

    Example: fedfactor federation remove federation.toml west --refit --certificate west.removed.json
    """
    from fedfactor.federation import setup
    from fedfactor.federation.coordinator import Coordinator
    from fedfactor.federation.removal import refuse_refit, write_certificate

    with polite(debug):
        place = Coordinator(file, folder)
        before = place.terms
        if name not in before.names:
            raise DataError(f"{name!r} is not one of the parties ({', '.join(before.names)}).")
        if refit:
            refuse_refit(before, place.folder)
        setup.revoke(file, name, reason)
        if not refit and place.remove(name):
            terms = before
            typer.echo(f"{name} is shut out; the others go on under the same terms, and the run does not wait for it.")
        else:
            terms = setup.dismiss(file, name)
            place.journal.write("removed", party=name, how="new terms", terms=terms.fingerprint)
            if refit:
                from fedfactor.federation.model_versions import start_next_at

                terms = start_next_at(file, place.folder)
        if certificate is not None:
            write_certificate(certificate, name, before, terms, place.folder, refit=refit)
            typer.echo(f"{certificate}: for {name}; it says what was done, and what cannot be unsent.")
        if terms is before:
            return
    typer.echo(
        f"{name} is no longer in {file}. The run was made with every party, so this is a new agreement:\n"
        f"  fedfactor serve {file} (again): {', '.join(terms.names)} are shown the difference, compare the words,\n"
        "  and consent with fedfactor accept;\n"
        f"  then fedfactor start {file} --again"
    )


def agree(
    file: Toml,
    names: Annotated[list[Path], typer.Argument(help="The parties' lists of columns, from fedfactor features.")],
    how: Annotated[How, typer.Option(help="same columns, the union of all columns, or their intersection.")] = How.same,
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
    kind = "rows" if terms.by_columns else "columns"
    typer.echo(f"{len(terms.features)} {kind} agreed, fingerprint {terms.content['features']['sha256'][:16]}.")


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


def certify(
    file: Toml,
    folder: Server = None,
    ca_key: Annotated[
        Path | None,
        typer.Option(help="The authority's key, where it is kept offline instead of in server/.", show_default=False),
    ] = None,
    debug: Debug = False,
) -> None:
    """Renew the server's certificate with the same authority; parties need nothing new.

    The server itself never reads ca.key: keep it offline, and give it here once a year.

    Example: fedfactor federation certify federation.toml
    """
    from fedfactor.federation import certificates
    from fedfactor.federation.coordinator import Coordinator

    with polite(debug):
        place = Coordinator(file, folder)
        made = certificates.make_server_certificate(place.folder, [place.terms.address[0]], ca_key=ca_key)
        place.journal.write("certificate renewed", until=f"{certificates.expires(made):%Y-%m-%d}")
    typer.echo(f"{made} is good until {certificates.expires(made):%Y-%m-%d}. Start fedfactor serve again.")


def plan(
    file: Toml,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the largest party.", show_default=False)],
    parties: Annotated[int, typer.Option(help="Number of parties, while the terms have none.")] = 0,
    columns: Annotated[int, typer.Option(help="Number of columns, while the terms have none.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Numbers, for programs.")] = False,
    debug: Debug = False,
) -> None:
    """Calculate what a federation needs: traffic, memory and disk of each party and of the coordinator.

    Takes a draft of the terms; a run in miniature on random rows counts the bytes.

    Example: fedfactor plan federation.toml --rows 20000 --columns 500 --parties 4
    """
    from fedfactor.federation.capacity import plan as needs
    from fedfactor.federation.terms import Terms

    with polite(debug):
        need = needs(Terms.read(file), rows, parties, columns)
    if as_json:
        typer.echo(json.dumps(asdict(need), indent=1))
        return
    typer.echo(f"{need.parties} parties, {need.columns} columns, {need.rounds} rounds, at most:")
    typer.echo(
        f"  a party sends      {size(need.bytes_up)}, receives {size(need.bytes_down)}, {need.messages} messages"
    )
    typer.echo(f"  its longest round  {size(need.bytes_first)}; a late one {size(need.bytes_round)}")
    typer.echo(f"  its memory         {size(need.party_memory)}; disk for each run {size(need.party_disk)}")
    typer.echo(
        f"  the coordinator    sends {size(need.parties * need.bytes_down)}, receives "
        f"{size(need.parties * need.bytes_up)}; memory {size(need.server_memory)}"
    )
    typer.echo("TLS and HTTP add some 1.5 kB to each message.")


def backup(
    place: Annotated[
        Path, typer.Argument(help="federation.toml at the coordinator, or your own folder.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="A new file, such as north.tar.", show_default=False)],
    key: Annotated[Path | None, typer.Option(help="At a party: your key, where its books name none.")] = None,
    debug: Debug = False,
) -> None:
    """Write one archive of all that a coordinator or a party cannot make again. It holds private keys.

    Example: fedfactor backup federation.toml -o study.tar
    """
    from fedfactor.federation.backup import back_up

    with polite(debug):
        made = back_up(place, out, key)
    typer.echo(
        f"{out}: {made['kind']}, {made['files']} files, {size(made['bytes'])}, read through. Keep it like a key."
    )


def restore(
    archive: Annotated[Path, typer.Argument(help="What fedfactor backup wrote.", show_default=False)],
    into: Annotated[Path, typer.Option("--into", help="Folder in which its files are put.")] = Path(),
    debug: Debug = False,
) -> None:
    """Put the files of a backup into a folder that has none of them.

    Example: fedfactor restore study.tar --into study
    """
    from fedfactor.federation.backup import restore as put_back

    with polite(debug):
        said = put_back(archive, into)
    typer.echo(f"Restored into {into}. Next: fedfactor federation check")
    for line in said:
        typer.echo(f"Note: {line}")


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


def register(app: typer.Typer) -> None:
    """Add the group ``federation`` and the commands of its members."""
    group = typer.Typer(help="Set up a federation across organisations.", no_args_is_help=True)
    for command in (
        init,
        invite,
        add,
        change,
        remove,
        leave,
        forget,
        worth,
        agree,
        units,
        check,
        show,
        certify,
        request,
        blind,
    ):
        group.command()(command)
    group.command(name="try")(attempt)
    group.command()(dossier)
    group.command()(versions)
    group.command(name="next")(go_on)
    app.add_typer(group, name="federation")
    for command in (plan, backup, restore, keygen, accept, vouch, features, serve, join, start, status, stop, results):
        app.command()(command)
