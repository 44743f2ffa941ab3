"""``fedfactor federation``: found one, let parties in and out, agree on columns; and where all its commands are."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedfactor.cli.console import Debug, polite
from fedfactor.cli.coordinator import serve, start, stop
from fedfactor.cli.dossier import dossier
from fedfactor.cli.party import blind, features, forget, join, keygen, leave, request, vouch, worth
from fedfactor.cli.privacy import Clip, Colluding, Delta, Epsilon, PublicRows, Subject, Unit, agreed_privacy
from fedfactor.cli.shared_options import Server, Split, Toml
from fedfactor.cli.status import check, results, status
from fedfactor.cli.versions import go_on, stability_of, versions
from fedfactor.core.errors import DataError
from fedfactor.core.missing_policies import missing_choices


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
    contact: Annotated[str, typer.Option(help="Whom to ask.")] = "",
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
    missing: Annotated[
        str, typer.Option(help=f"What marks a missing cell: {missing_choices()}; nan marks empty ones too.")
    ] = "none",
    split: Annotated[Split, typer.Option(help="What parties hold: rows, or columns of the same rows.")] = Split.rows,
    stability: Annotated[
        int,
        typer.Option(
            min=0,
            help="Allow so many runs with other seeds and, without --privacy, one without each party: see stability.",
        ),
    ] = 0,
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
            stability=stability,
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
        f"Next: every party makes a key (fedfactor keygen) and a list of columns (fedfactor features); then\n"
        f"  fedfactor federation add {file} NAME.key.pub ...\n"
        f"  fedfactor federation agree {file} NAME.features.json ..."
    )
    if "scale declared" in (step or ()):
        typer.echo(f"  fedfactor federation units {file} UNITS.csv (the ranges by which columns are scaled)")


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


def remove(
    file: Toml,
    name: Annotated[str, typer.Argument(help="The party that leaves for good.")],
    folder: Server = None,
    debug: Debug = False,
) -> None:
    """Let the others go on without a party: at once where the terms allow it, else by a new agreement.

    Example: fedfactor federation remove federation.toml west
    """
    from fedfactor.federation.coordinator import Coordinator
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
    typer.echo(
        f"{name} is no longer in {file}. The run was made with everybody, so this is a new agreement:\n"
        f"  send {file} to {', '.join(terms.names)}, who compare the words, end their fedfactor join\n"
        "  and join again with --accept-changes;\n"
        f"  fedfactor serve {file} (again), then fedfactor start {file} --again"
    )


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


def certify(file: Toml, folder: Server = None, debug: Debug = False) -> None:
    """Renew the server's certificate with the same authority; parties need nothing new.

    Example: fedfactor federation certify federation.toml
    """
    from fedfactor.federation import certificates
    from fedfactor.federation.coordinator import Coordinator

    with polite(debug):
        place = Coordinator(file, folder)
        made = certificates.make_server_certificate(place.folder, [place.terms.address[0]])
        place.journal.write("certificate renewed", until=f"{certificates.expires(made):%Y-%m-%d}")
    typer.echo(f"{made} is good until {certificates.expires(made):%Y-%m-%d}. Start fedfactor serve again.")


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
    for command in (init, add, remove, leave, forget, worth, agree, units, check, show, certify, request, blind):
        group.command()(command)
    group.command(name="try")(attempt)
    group.command()(dossier)
    group.command()(versions)
    group.command(name="next")(go_on)
    group.command(name="stability")(stability_of)
    app.add_typer(group, name="federation")
    for command in (keygen, vouch, features, serve, join, start, status, stop, results):
        app.command()(command)
