"""Differential privacy in the words of a user: a budget, a unit, and what is public."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from fedfactor.core.errors import IncompatibleError
from fedfactor.core.pytree import is_list
from fedfactor.privacy.accounting import Accountant
from fedfactor.privacy.ledger import Ledger, Unit

__all__ = ["DP", "dp", "refuse_repeats"]


@dataclass(frozen=True, slots=True)
class DP:
    """Settings made by :func:`dp`."""

    epsilon: float
    delta: float
    unit: Unit
    clip: float | None
    row_bound: float | None
    rows: float | None
    subject: str | Mapping[str, Any] | None
    cap: int
    known_to: int
    noise: Literal["distributed", "local"]
    colluding: int
    sampling: float
    accountant: Accountant
    noise_multiplier: float | None
    ledger: Ledger | str | os.PathLike[str] | None
    noise_seed: int | None


@runtime_checkable
class RefusesNoise(Protocol):
    """Cannot use uploads with noise on them, with some or all of its settings."""

    @property
    def against_noise(self) -> str:
        """Return why, and what to do; nothing where it can."""
        ...


def against_noise(algorithm: Any) -> str:
    """Return why an algorithm cannot use uploads with noise; nothing when it can."""
    return algorithm.against_noise if isinstance(algorithm, RefusesNoise) else ""


def dp(
    epsilon: float,
    delta: float = 1e-5,
    *,
    unit: Unit = "row",
    clip: float | None = None,
    row_bound: float | None = None,
    rows: float | None = None,
    subject: str | Mapping[str, Any] | None = None,
    cap: int = 1,
    known_to: int = 1,
    noise: Literal["distributed", "local"] = "distributed",
    colluding: int = 0,
    sampling: float = 1.0,
    accountant: Accountant = "rdp",
    noise_multiplier: float | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    noise_seed: int | None = None,
) -> DP:
    r"""Ask for (ε, δ)-differential privacy of a whole run.

    Whatever the server and the public learn in all rounds together, its distribution changes by at most a factor
    :math:`e^\varepsilon` (and δ) when one unit is added to, or removed from, the data.

    Parameters
    ----------
    epsilon, delta : float
        The budget of the whole run. δ should be well below one over the number of units.
    unit : {"row", "client", "subject"}
        The protected unit: one row; one client with all its rows; or one subject with up to `cap` rows. A row is often
        a visit, a cell or a session: it is a person only if every person has one row.
    clip : float, optional
        For ``unit="client"``: the largest norm of a client's upload, measured from the neutral upload.
        Chosen without looking at the data.
    row_bound : float, optional
        A public bound on the norm of a row; longer rows are cut. When None, it is estimated with noise, from 5 % of
        the budget.
    rows : float, optional
        Public number of rows of all clients. When None, estimated together with the bound.
    subject : str or mapping, optional
        For ``unit="subject"``: the column that names subjects, or client name → ids in row order.
    cap : int
        Rows of one subject that count, at each client that knows it.
    known_to : int
        Clients that may know one and the same subject: the noise covers `cap` rows at each of them. With 1, a subject
        with rows at two clients is not covered.
    noise : {"distributed", "local"}
        ``"distributed"``: each client adds a part, under secure aggregation. ``"local"``: each client adds the whole
        noise itself, and nothing else is assumed of the server; √clients times noisier.
    colluding : int
        Clients who may reveal their noise to the server: the others make up for it. A client that only looks at V for
        itself knows its own share of the noise too: 1 covers that. A coordinator who is a client
        (``Minimums(coordinator_is_client=True)``) is counted beside these.
    sampling : float
        For ``unit="client"``: chance with which each client takes part in a round, by a secret coin.
    accountant : {"rdp", "pld"}
        What the noise is calibrated with: the certified bound, or the tight figure.
    noise_multiplier : float, optional
        Fix the noise instead of calibrating it; the run then stops when ε is spent.
    ledger : Ledger or path, optional
        The books of the data set, across runs.
    noise_seed : int, optional
        Draw noise from a seed, to repeat an experiment. The guarantee is void: the ledger calls the run a simulation.

    Returns
    -------
    DP

    Examples
    --------
    >>> import fedfactor
    >>> fedfactor.dp(epsilon=1, delta=1e-6, unit="row").epsilon
    1.0
    """
    made = DP(
        float(epsilon),
        float(delta),
        unit,
        clip,
        row_bound,
        rows,
        subject,
        cap,
        known_to,
        noise,
        colluding,
        float(sampling),
        accountant,
        noise_multiplier,
        ledger,
        noise_seed,
    )
    _check(made)
    return made


def _check(made: DP) -> None:
    if not (0 < made.epsilon < math.inf and 0 < made.delta < 1):
        raise ValueError(f"dp needs 0 < epsilon < inf and 0 < delta < 1, got {made.epsilon}, {made.delta}.")
    if made.unit not in ("row", "client", "subject"):
        raise ValueError(f"unit={made.unit!r} is not known. Use 'row', 'client' or 'subject'.")
    if made.noise not in ("distributed", "local"):
        raise ValueError(f"noise={made.noise!r} is not known. Use 'distributed' or 'local'.")
    if made.accountant not in ("rdp", "pld"):
        raise ValueError(f"accountant={made.accountant!r} is not known. Use 'rdp' or 'pld'.")
    if (made.unit == "client") != (made.clip is not None):
        raise ValueError("clip bounds whole uploads: give it with unit='client', and only then.")
    if (made.unit == "subject") != (made.subject is not None):
        raise ValueError("subject names whose rows belong together: give it with unit='subject', and only then.")
    if not 0 < made.sampling <= 1 or (made.sampling < 1 and (made.unit != "client" or made.noise == "local")):
        raise ValueError(
            "sampling must lie in (0, 1], and below 1 needs unit='client' under secure aggregation: only there the "
            "absence of a client stays hidden."
        )
    if made.colluding < 0:
        raise ValueError(f"colluding={made.colluding} must not be negative.")
    counts = (made.cap, made.known_to)
    if any(count != int(count) or count < 1 for count in counts) or (counts != (1, 1) and made.unit != "subject"):
        raise ValueError(f"cap and known_to must be whole, at least 1, and 1 unless unit='subject'; got {counts}.")
    for name in ("row_bound", "rows", "noise_multiplier"):
        given = getattr(made, name)
        if given is not None and not 0 < given < math.inf:
            raise ValueError(f"{name}={given} must be positive and finite.")


def as_parts(privacy: Any) -> Sequence[Any]:
    """Return the parts of what protects a run, one or several."""
    return privacy if is_list(privacy) else (privacy,)


def asked_of(privacy: Any) -> DP | None:
    """Find the budget in what protects a run, if there is one."""
    return next((part for part in as_parts(privacy) if isinstance(part, DP)), None)


def refuse_start(privacy: Any, why: str) -> None:
    """Refuse a private run that starts at components of another: what those revealed about its rows is in no budget."""
    asked = asked_of(privacy)
    if asked is not None:
        raise IncompatibleError(
            f"{why} starts at components that rows have shaped, and dp(epsilon={asked.epsilon:g}) would not count what "
            "they reveal. Start a private run again."
        )


def refuse_repeats(privacy: Any, runs: int, why: str) -> None:
    """Refuse to repeat a run whose budget is for one: each repeat spends all of it, and the choice among them is
    published.

    Parameters
    ----------
    privacy : as in :func:`fedfactor.run`
    runs : int
        How many there would be.
    why : str
        What asks for them, for the message.

    Examples
    --------
    >>> refuse_repeats(dp(1.0), 1, "n_init=1")
    >>> refuse_repeats("secure-sum", 3, "n_init=3")
    """
    asked = asked_of(privacy)
    if asked is not None and runs > 1:
        raise IncompatibleError(
            f"{why} makes {runs} runs, but dp(epsilon={asked.epsilon:g}) is the budget of one: each would spend all of "
            "it, and the errors that choose among them carry no noise. Choose on public data, then run once in private."
        )
