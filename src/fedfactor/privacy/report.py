"""What a run says about its own privacy: who sees what, what was spent, and what is not covered."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fedfactor.privacy.leak import sum_account
from fedfactor.privacy.noise import Gaussian
from fedfactor.privacy.paper_noise import PaperNoise
from fedfactor.privacy.robust import Robust
from fedfactor.privacy.secure_sum import SecureSum

if TYPE_CHECKING:
    from fedfactor.privacy.session import Channel

__all__ = ["describe", "privacy_report"]

_SECURE = "the sum of all uploads in each round, and no single one"
_CLEAR = "every client's upload in each round"


def privacy_report(channel: Channel, rounds: int) -> dict[str, Any]:
    """Return plain data for ``run.json``."""
    secure = any(isinstance(t, SecureSum) for t in channel.transforms)
    noise = next((t for t in channel.transforms if t.noisy), None)
    robust = next((t for t in channel.transforms if isinstance(t, Robust)), None)
    entry = channel.books.entry
    told = "noisy " if noise is not None else ""
    clear = [kind.__name__ for kind in channel.algorithm.messages(channel.meta) if _gathered(kind)]
    report: dict[str, Any] = {
        "mode": "dp" if channel.asked else "robust" if robust else "secure-sum" if secure else "custom",
        "channel": [type(t).__name__ for t in channel.transforms],
        "sees": {
            "server": (_SECURE if secure else _CLEAR)
            .replace("uploads", told + "uploads")
            .replace("upload ", told + "upload ")
            + (f"; each {' and '.join(clear)} in clear" if secure and clear else ""),
            "other clients": "the shared V of each round",
            "public": "whatever V is published",
        },
        "in_clear": clear,
        "not_covered": _not_covered(channel, secure, noise),
        "minimums": asdict(channel.minimums),
        "simulation": _simulation(channel),
        "rejected_uploads": channel.rejected,
        **channel.about,
        **_guarantee(channel, noise, entry),
    }
    if noise is None:
        sent = [s for kind, s in channel.algorithm.messages(channel.meta).items() if hasattr(kind, "uplink")]
        most = max((sum_account(spec, channel.meta, rounds) for spec in sent), key=lambda a: a["equations_per_column"])
        report["exact_sums_at_most" if secure else "exact_uploads_at_most"] = most
    return report


def _gathered(kind: type) -> bool:
    return getattr(kind, "uplink", "") == "gather"


def _guarantee(channel: Channel, noise: Any, entry: Any) -> dict[str, Any]:
    if isinstance(noise, PaperNoise):
        return {"epsilon": math.inf, "guarantee": f"none: {noise.label}", "unit": None}
    if not isinstance(noise, Gaussian) or not entry.proven:
        return {"epsilon": math.inf, "guarantee": "none: exact values are released", "unit": None}
    own, delta = channel.books.ledgers, channel.asked.delta if channel.asked else 1e-5
    books = own[0] if own else None
    found: dict[str, Any] = {"unit": entry.unit, "delta": delta, "noise_multiplier": entry.noise_multiplier}
    if books is not None:
        found["epsilon"] = books.epsilon(delta, "rdp", entry.run, as_if=True)
        found["epsilon_tight"] = books.epsilon(delta, "pld", entry.run, as_if=True)
    if len(own) > 1:
        found["data_set_epsilon"] = max(ledger.epsilon() for ledger in own[1:])
    found["guarantee"] = f"(ε, δ)-differential privacy of one {entry.unit}, added or removed, over the whole run"
    found["noise_is"] = noise.share
    found["void"] = entry.simulation  # a seed repeats the noise, and takes it off
    return found


def _simulation(channel: Channel) -> list[str]:
    why = []
    if channel.simulation:
        why.append("all parties are one process")
    if channel.asked is not None and channel.asked.noise_seed is not None:
        why.append("noise was drawn from a seed: whoever knows it can take the noise off")
    return why


def _not_covered(channel: Channel, secure: bool, noise: Any) -> list[str]:
    found = ["U, predictions and scores that leave a client", "what a client sees of its own rows"]
    if noise is None and secure:
        found.append("rows: without noise, sums of many rounds can reveal them")
        found.append("the counts per column, which the server sees as sums over clients")
        found.append("rows or clients that come or go between two runs: the sums of the runs differ by their parts")
        found.append("a server that lies: it can choose V so that few rows speak")
    if secure and any(map(_gathered, channel.algorithm.messages(channel.meta))):
        found.append("uploads that the server sees one by one (in_clear): no sum hides them")
    if isinstance(noise, Gaussian):
        if channel.books.entry.unit == "row":
            found.append("a person with several rows, unless each has one")
            found.append("properties of a whole client")
        if channel.books.entry.unit == "subject":
            found.append(f"a subject with rows at more than {channel.asked.known_to if channel.asked else 1} clients")
        if noise.share == "distributed":
            found.append(
                f"more than {channel.asked.colluding if channel.asked else 0} clients who tell the server their noise"
            )
            if channel.asked is not None and not channel.asked.colluding:
                found.append("a client that takes its own share of the noise off what it sees (colluding=1 covers it)")
        found.append(
            "choices made by looking at the data: rank, bounds, number of rounds, unless the ledger paid for them"
        )
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
