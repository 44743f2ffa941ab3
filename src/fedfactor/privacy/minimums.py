"""Minimums below which a sum hides too little, and what happens when one is not met."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedfactor.core.errors import FedfactorError

__all__ = ["MINIMUMS", "Minimums", "PrivacyWarning", "RefusedError", "judge_rows"]

Named = Literal["small-client", "few-clients", "rare-columns", "changed-cohort"]
MINIMUMS = ("small-client", "few-clients", "rare-columns", "changed-cohort")


class PrivacyWarning(UserWarning):
    """A simulation did what would be refused between real parties."""


class RefusedError(FedfactorError):
    """A run was refused because it would reveal too much; the message names the minimum and how to override it."""


@dataclass(frozen=True, slots=True)
class Minimums:
    """The least that must be there before a client sends anything.

    Parameters
    ----------
    client_rows : int, optional
        Fewest rows of a client; by default ten per component, and at least 100. Rows can be recovered from one upload
        of a client with no more rows than components, and membership is guessed well above chance up to some hundred.
    clients : int
        Fewest clients that do not collude with the server. A coordinator who is also a client does not count.
    coordinator_is_client : bool
        Whether the server also owns rows.
    column_rows, column_clients : int
        Fewest rows, and clients, that fill a column. A column that one row fills shows that row's part in any sum.
    rare_columns : {"withhold", "merge", "refuse"}
        Columns below that: set to zero before anything is computed, summed into the first of them, or refused.
    allow : tuple of str
        Minimums the user overrides by name: ``"small-client"``, ``"few-clients"``, ``"rare-columns"``,
        ``"changed-cohort"``.
    strict : bool
        Refuse in a simulation too.

    Examples
    --------
    >>> Minimums().rows_for(20)
    200
    >>> Minimums().judge("few-clients", "two clients", simulation=False)
    Traceback (most recent call last):
    ...
    fedfactor.privacy.minimums.RefusedError: two clients. ...
    """

    client_rows: int | None = None
    clients: int = 3
    coordinator_is_client: bool = False
    column_rows: int = 5
    column_clients: int = 2
    rare_columns: Literal["withhold", "merge", "refuse"] = "withhold"
    allow: tuple[Named, ...] = ()
    strict: bool = False

    def check(self) -> None:
        """Refuse words that are not known."""
        unknown = [name for name in self.allow if name not in MINIMUMS]
        if unknown:
            raise ValueError(f"allow={unknown[0]!r} is not a minimum. The names are {', '.join(MINIMUMS)}.")
        if self.rare_columns not in ("withhold", "merge", "refuse"):
            raise ValueError(f"rare_columns={self.rare_columns!r} is not known. Use 'withhold', 'merge' or 'refuse'.")

    def rows_for(self, n_components: int) -> int:
        """Return the fewest rows of a client for such a rank."""
        return max(100, 10 * n_components) if self.client_rows is None else self.client_rows

    def judge(self, name: Named, finding: str, *, simulation: bool) -> None:
        """Refuse between real parties; warn in a simulation; accept when the user overrode it by name."""
        if name in self.allow:
            return
        if self.strict or not simulation:
            raise RefusedError(f'{finding}. To override, pass Minimums(allow=("{name}",)) or --allow {name}.')
        warnings.warn(
            f"{finding}. This simulation continues; a real federation refuses it, unless Minimums(allow="
            f'("{name}",)) is passed.',
            PrivacyWarning,
            stacklevel=2,
        )

    def judge_clients(self, rows: Mapping[str, int], n_components: int, *, simulation: bool) -> None:
        """Look at the number of clients and at their sizes."""
        independent = len(rows) - self.coordinator_is_client
        if independent < self.clients:
            finding = (
                f"{independent} clients that do not collude with the server, {self.clients} are wanted: with two, "
            )
            self.judge(
                "few-clients", finding + "each can subtract its own part and read the other's", simulation=simulation
            )
        least = self.rows_for(n_components)
        small = {name: n for name, n in rows.items() if n < least}
        if small:
            name, n = min(small.items(), key=lambda item: item[1])
            finding = (
                f"{len(small)} of {len(rows)} clients have fewer than {least} rows (the smallest, {name!r}, has {n}; "
                f"the rank is {n_components}): sums of few rows say much about each"
            )
            self.judge("small-client", finding, simulation=simulation)


def judge_rows(k: int, rows: Mapping[str, int], minimums: Minimums | None = None, *, simulation: bool) -> None:
    """Warn of (or refuse) clients that send uploads in the clear with no more rows than components."""
    small = [name for name, count in rows.items() if count <= k] if len(rows) > 1 else []
    if small:
        finding = (
            f"{len(small)} of {len(rows)} clients have no more rows than components (the first is {small[0]!r}) "
            "and send their uploads in the clear: their rows can be read from one of them"
        )
        (minimums or Minimums()).judge("small-client", finding, simulation=simulation)
