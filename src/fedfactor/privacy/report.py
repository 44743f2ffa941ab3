"""The privacy report of a run: who sees what, what was spent, and what is not covered."""

from __future__ import annotations

import contextlib
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fedfactor.core.algorithm import Meta, Uplink
from fedfactor.core.errors import MissingExtraError
from fedfactor.core.transforms import Transform
from fedfactor.core.wire import Spec
from fedfactor.privacy.accounting import epsilon_of

if TYPE_CHECKING:
    from fedfactor.privacy.pipeline import Channel

__all__ = ["describe", "privacy_report"]

_CLEAR = "every client's upload in each round"


def privacy_report(channel: Channel, rounds: int) -> dict[str, Any]:
    """Return plain data for ``run.json``."""
    sees = _CLEAR
    in_clear = [kind.__name__ for kind in channel.algorithm.messages(channel.meta) if _gathered(kind)]
    for link in channel.links:
        sees = link.sees(sees)
    if channel.hides and in_clear:
        sees += f"; each {' and '.join(in_clear)} in clear"
    modes = [link.mode for link in channel.links if link.mode]
    report: dict[str, Any] = {
        "mode": "dp" if channel.asked else modes[0] if modes else "custom",
        "channel": [type(link).__name__ for link in channel.links],
        "sees": {"server": sees, "other clients": "the shared V of each round", "public": "whatever V is published"},
        "in_clear": in_clear,
        "not_covered": _not_covered(channel),
        "minimums": asdict(channel.minimums),
        "simulation": _simulation(channel),
        "rejected_uploads": channel.rejected,
        **channel.about,
        **_guarantee(channel, rounds),
    }
    if not channel.sender.noisy:
        sent = [s for kind, s in channel.algorithm.messages(channel.meta).items() if hasattr(kind, "uplink")]
        most = max((sum_account(spec, channel.meta, rounds) for spec in sent), key=lambda a: a["equations_per_column"])
        report["exact_sums_at_most" if channel.hides else "exact_uploads_at_most"] = most
    return report


def _gathered(kind: type) -> bool:
    return getattr(kind, "uplink", "") == Uplink.GATHER


def _guarantee(channel: Channel, rounds: int) -> dict[str, Any]:
    entry = channel.books.entry
    noise = next((link for link in channel.links if link.noisy), None)
    if noise is None or not entry.protects:
        why = Transform.label if noise is None else noise.label
        return {"epsilon": math.inf, "guarantee": f"none: {why}", "unit": None}
    own = channel.books.ledgers
    delta = channel.asked.delta if channel.asked else 1e-5
    books = own[0] if own else None
    each = {"noise_multiplier": entry.noise_multiplier} if entry.epsilon is None else {"epsilon_each": entry.epsilon}
    found: dict[str, Any] = {"unit": entry.unit, "delta": delta, **each}
    if books is None:  # the spending is not recorded, but the rounds of this run can be counted
        with contextlib.suppress(MissingExtraError):
            found["epsilon"] = epsilon_of([entry.release] * rounds, delta)
    else:
        found["epsilon"] = books.epsilon(delta, "rdp", entry.run, as_if=True)
        found["epsilon_tight"] = books.epsilon(delta, "pld", entry.run, as_if=True)
    if len(own) > 1:
        found["data_set_epsilon"] = max(ledger.epsilon() for ledger in own[1:])
    found["guarantee"] = f"(ε, δ)-differential privacy of one {entry.unit}, added or removed, over the whole run"
    found |= noise.facts()
    found["void"] = entry.simulation  # a seed repeats the noise, and takes it off
    return found


def _simulation(channel: Channel) -> list[str]:
    why: list[str] = []
    if channel.simulation:
        why.append("all parties are one process")
    if channel.noise_seed is not None:
        why.append("noise was drawn from a seed: knowledge of the seed removes the noise")
    return why


def _not_covered(channel: Channel) -> list[str]:
    found = ["U, predictions and scores that leave a client", "what a client sees of its own rows"]
    for link in channel.links:
        found += link.not_covered(channel)
    return found


def describe(report: dict[str, Any]) -> str:
    """Write a report for people.

    Examples
    --------
    >>> print(describe({"mode": "secure-sum", "sees": {"server": "sums"}, "epsilon": float("inf"), "guarantee": "none",
    ...                 "not_covered": ["U"], "simulation": []}))
    privacy: secure-sum; ε = inf (none)
      server sees: sums
      not covered: U
    """
    epsilon = report.get("epsilon", math.inf)
    shown = "inf" if math.isinf(epsilon) else f"{epsilon:.3g}, δ = {report['delta']:g}, unit {report['unit']}"
    lines = [f"privacy: {report['mode']}; ε = {shown} ({report['guarantee']})"]
    lines += [f"  {who} sees: {what}" for who, what in report["sees"].items()]
    lines += [f"  not covered: {what}" for what in report["not_covered"]]
    lines += [f"  a simulation: {why}" for why in report["simulation"]]
    return "\n".join(lines)


def sum_account(spec: Spec, meta: Meta, rounds: int) -> dict[str, Any]:
    """Count what exact sums reveal: every round adds linear equations in the cells of each column.

    Parameters
    ----------
    spec : mapping
        Leaves of the upload.
    meta : Meta
        Of the federation.
    rounds : int
        Rounds that are summed exactly.

    Returns
    -------
    dict
        ``equations_per_column`` against ``rows``: knowledge of U would allow solving for the cells of a column that no
        more rows fill than there are equations.

    Examples
    --------
    >>> from fedfactor.core.wire import Leaf
    >>> meta = Meta(n_features=50, clients=("a", "b", "c"), n_rows=400)
    >>> sum_account({"A": Leaf("float64", (20, 50))}, meta, rounds=60)["equations_per_column"]
    1200
    """
    wide = sum(math.prod(leaf.shape) for leaf in spec.values() if leaf.shape and leaf.shape[-1] == meta.n_features)
    equations = rounds * wide // max(1, meta.n_features)
    return {"equations_per_column": equations, "rows": meta.n_rows}
