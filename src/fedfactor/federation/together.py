"""Several parties in one process, each with its own key, folder and node: for trials of many, or small machines."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedfactor.engines.remote.client_folder import ClientFolder
from fedfactor.federation.children import ChildError
from fedfactor.federation.member import Member


def serve_together(seats: Sequence[tuple[Member, ClientFolder]], stop: threading.Event) -> None:
    """Serve all of these parties' messages until stopped, each in a thread; raises at the end when one was turned away.

    Parameters
    ----------
    seats : sequence of (Member, ClientFolder)
        Parties that have signed up.
    stop : threading.Event
        Ends all of them.
    """
    wrong: list[ChildError] = []

    def serve(member: Member, store: ClientFolder) -> None:
        try:
            member.join(store, stop=stop)
        except ChildError as error:
            wrong.append(error)  # the others go on

    threads = [threading.Thread(target=serve, args=seat, daemon=True) for seat in seats]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(0.5)
    for error in wrong:
        raise error


def main(file: Path) -> None:
    """Sign up and serve the parties that a file lists, with the terms, key, data and folder of each."""
    about: Mapping[str, list[Mapping[str, str]]] = json.loads(file.read_bytes())
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    seats = []
    for seat in about["seats"]:
        member = Member(seat["terms"], seat["key"], seat["folder"])
        seats.append((member, member.sign_up(seat["data"], confirmed=True)))
    serve_together(seats, stop)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
