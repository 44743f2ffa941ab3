"""Several parties in one process, each with its own key, folder and node: for small machines, or trials of many."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from fedfactor.core.errors import FedfactorError
from fedfactor.federation.party import Member
from fedfactor.network.client_storage import ClientFolder


def serve_together(seats: Sequence[tuple[Member, ClientFolder, Callable[[str], Any]]], stop: threading.Event) -> None:
    """Serve all of these parties' messages until stopped, each in a thread; raises at the end when one was turned away.

    Parameters
    ----------
    seats : sequence of (Member, ClientFolder, callable)
        Parties that have signed up, with the callbacks that are notified for each.
    stop : threading.Event
        Ends all of them.
    """
    wrong: list[Exception] = []

    def serve(member: Member, store: ClientFolder, say: Callable[[str], Any]) -> None:
        try:
            member.join(store, stop=stop, say=say)
        except (FedfactorError, OSError) as error:  # one whose disk is full, too
            say(str(error))
            wrong.append(error)  # the others go on

    threads = [threading.Thread(target=serve, args=seat, daemon=True) for seat in seats]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(0.5)
    for error in wrong:
        raise error
