"""``fedfactor serve``, ``start`` and ``stop``: the commands on the server's machine."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from fedfactor.cli.console import ATTENTION, Debug, polite
from fedfactor.cli.shared_options import JsonLogs, Page, PageAddress, Server, Toml
from fedfactor.core.errors import DataError
from fedfactor.core.printable_text import printable

DAY = 86_400
"""Seconds between two looks at the certificate."""


def serve(
    file: Toml,
    folder: Server = None,
    listen: Annotated[
        str,
        typer.Option(
            help="Where to listen, HOST:PORT, if not at the address in federation.toml: behind a port forward, a load "
            "balancer, or on one network only.",
            show_default=False,
        ),
    ] = "",
    party_authority: Annotated[
        list[Path] | None,
        typer.Option(
            help="Authority (PEM) of an organisation whose parties present its certificates; may be repeated."
        ),
    ] = None,
    begin: Annotated[bool, typer.Option("--start", help="Start a run (or let one go on) as soon as it is up.")] = False,
    page: Page = None,
    page_address: PageAddress = "127.0.0.1",
    json_logs: JsonLogs = False,
    debug: Debug = False,
) -> None:
    """Serve the federation until interrupted: TLS, and only parties whose keys are in the file.

    Example: fedfactor serve federation.toml
    """
    from fedfactor.cli.live_page import logs_as_json, server_pages, show_page, told
    from fedfactor.federation.coordinator import Coordinator
    from fedfactor.federation.logs import both
    from fedfactor.federation.party import stop_on_signals
    from fedfactor.federation.progress_lines import ServerWatch

    stop = threading.Event()
    with polite(debug):
        place = Coordinator(file, folder)
        stop_on_signals(stop)
        logs_as_json(json_logs)
        try:
            place.serve(listen, tuple(party_authority or ()))
            gc.freeze()  # modules stay: collecting the garbage of many connections does not look through them
            say = both(told, place.folder / "events.log")
            if page is not None:
                show_page(server_pages(place), page_address, page, place.folder)
            address = place.terms.content["server"]["address"]
            assert place.serving is not None
            where = f", listening on {place.serving.where}" if listen else ""
            parties = len(place.terms.names)
            typer.echo(f"Serving {parties} parties at {address}{where}. Interrupt to end; log: {place.log}")
            if begin:
                try:
                    place.start()
                except DataError as error:  # a finished run is no reason not to serve
                    say(str(error))
            watch = ServerWatch(place)
            seconds = 0
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


def start(
    file: Toml,
    folder: Server = None,
    again: Annotated[bool, typer.Option("--again", help="Forget the last run and start another.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --again: also one that goes on, or that could still go on.")
    ] = False,
    accept_versions: Annotated[
        bool,
        typer.Option(
            "--accept-versions",
            help="Resume a run that was begun with other versions of packages: it then is not bit-identical to an "
            "undisturbed run, and rounds that were paid for with ε are kept.",
        ),
    ] = False,
    wait: Annotated[float, typer.Option(help="Wait so many seconds for its end.")] = 0.0,
    debug: Debug = False,
) -> None:
    """Start a run, or let an interrupted one go on. On the server's machine, while fedfactor serve is running.

    Example: fedfactor start federation.toml --wait 600
    """
    from fedfactor.federation.coordinator import Coordinator, UnsureError
    from fedfactor.federation.progress_lines import run_words

    with polite(debug):
        place = Coordinator(file, folder)
        try:
            changed = place.start(again=again, sure=yes, accept_versions=accept_versions)
        except UnsureError as unsure:
            if not sys.stdin.isatty():
                raise DataError(f"{unsure} Say --yes if you mean it.") from None
            if not typer.confirm(f"{unsure} Forget it?"):
                raise typer.Exit(1) from None
            changed = place.start(again=again, sure=True, accept_versions=accept_versions)
        for line in changed:
            typer.echo(f"Accepted: {line}.")
        typer.echo(f"Started. See: fedfactor status {file}")
        if wait:
            ended = place.wait(wait)
            typer.echo(printable(run_words(ended)))
            if ended["state"] != "finished":
                raise typer.Exit(ATTENTION)


def stop(file: Toml, folder: Server = None, debug: Debug = False) -> None:
    """End the run after the present round, or a paused one at once; every party keeps what was reached.

    Example: fedfactor stop federation.toml
    """
    from fedfactor.federation.coordinator import Coordinator

    with polite(debug):
        paused = Coordinator(file, folder).stop()
    when = "now, with what it had reached" if paused else "after the present round"
    typer.echo(f"The run will end {when}. See: fedfactor status {file}")
