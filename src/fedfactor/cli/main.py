"""The command ``fedfactor`` and its parts."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from fedfactor.cli.audit import audit
from fedfactor.cli.compare import compare
from fedfactor.cli.demo import demo
from fedfactor.cli.doctor import doctor
from fedfactor.cli.epsilon import epsilon
from fedfactor.cli.export import export
from fedfactor.cli.federation import register
from fedfactor.cli.fit import fit
from fedfactor.cli.inspect import inspect
from fedfactor.cli.parameter_parsing import settings
from fedfactor.cli.rank import rank
from fedfactor.cli.recommend import predict, recommend
from fedfactor.cli.report import report
from fedfactor.cli.results import info, transform
from fedfactor.cli.split import split

app = typer.Typer(
    name="fedfactor",
    help="Factor matrices together without sharing them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # errors are shown in one line; a traceback is for --debug, and then a plain one
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        try:
            number = metadata.version("fedfactor")
        except metadata.PackageNotFoundError:  # run from its sources
            number = "(not installed)"
        typer.echo(f"fedfactor {number}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say it and stop.")
    ] = False,
) -> None: ...


app.command()(fit)
app.command()(inspect)
app.command()(demo)
app.command()(transform)
app.command()(info)
app.command()(report)
app.command()(export)
app.command()(recommend)
app.command()(predict)
app.command()(settings)
app.command()(rank)
app.command()(compare)
app.command()(epsilon)
app.command()(audit)
app.command()(split)
app.command()(doctor)
register(app)
