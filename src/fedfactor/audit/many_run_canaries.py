"""A lower bound on ε from many runs of the real code: one unit is present in half of them, and an attacker guesses in
which.

The attacker knows all data, the code, every V that was sent and every sum that was released, but not whether the one
unit took part. It replays what each world would have sent without noise, and asks which of the two fits better what was
released: for Gaussian noise no other question reveals more. It also looks through every number that is published of a
run, and takes one that distinguishes the two worlds for certain, if there is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta

from fedfactor.core.algorithm import Algorithm, download_for
from fedfactor.core.client_data import Federation
from fedfactor.core.flattened_upload import Parcel, flatten
from fedfactor.core.pytree import is_list, is_mapping
from fedfactor.core.run import Run
from fedfactor.core.transforms import Site
from fedfactor.engines import client_step as client
from fedfactor.engines.run import run
from fedfactor.privacy.accounting import analytic_epsilon
from fedfactor.privacy.dp import DP
from fedfactor.privacy.planner import Plan, make_plan
from fedfactor.privacy.publication import split_record
from fedfactor.privacy.upload_recorder import Listener

__all__ = ["Worlds", "bound_from_runs", "canary_worlds", "guess_worlds", "published_numbers"]

LEARN = 12
"""Runs from which the attacker learns whether a published number gives the unit away; they are not counted."""

COLUMNS = 8
"""Of the small data in which the unit hides."""


@dataclass(frozen=True, slots=True)
class Worlds:
    """Clients' rows without and with one unit, and what a claim about that unit is made with."""

    without: Mapping[str, np.ndarray]
    including: Mapping[str, np.ndarray]
    asked: DP

    def of(self, there: bool) -> tuple[Mapping[str, np.ndarray], DP]:
        """Return the rows of one world, and the claim; ids of subjects are as many as there are rows."""
        rows = self.including if there else self.without
        if self.asked.unit != "subject":
            return rows, self.asked
        ids = {name: np.minimum(np.arange(len(X)), len(self.without[name])) for name, X in rows.items()}
        return rows, replace(self.asked, subject=ids)


def canary_worlds(asked: DP, *, scale: float = 1.0, seed: int = 0) -> Worlds:
    """Make small binary data and a unit that adds as much as the claim allows: a row, a subject, or a whole client.

    Parameters
    ----------
    asked : DP
        The claim; public bounds that it leaves open are set to those of the data made here.
    scale : float
        Size of the ones of a client that is the unit: large enough that its upload is cut.
    seed : int

    Examples
    --------
    >>> from fedfactor.privacy import dp
    >>> worlds = canary_worlds(dp(1.0))
    >>> {name: len(worlds.including[name]) - len(rows) for name, rows in worlds.without.items()}
    {'a': 0, 'b': 0, 'c': 1}
    """
    rng = np.random.default_rng([seed, 29])
    names = "abcdefghijklmnopqrstuvwxyz"[: max(3, min(26, asked.known_to))]
    base = {name: (rng.random((2, COLUMNS)) < 0.5) * 1.0 for name in names}
    unit = np.ones(COLUMNS)
    if asked.unit == "client":
        silent = np.zeros((1, COLUMNS))
        return Worlds({**base, names[-1]: silent}, {**base, names[-1]: scale * np.tile(unit, (2, 1))}, asked)
    # A subject comes with more rows than count, to every client that may know it.
    copies = 1 if asked.unit == "row" else asked.cap + 2
    homes = names[-1:] if asked.unit == "row" else names[-asked.known_to :]
    unit[COLUMNS // 2 :] = 0  # a row that no V of few components explains adds most
    more = {name: np.concatenate([base[name], np.tile(unit, (copies, 1))]) for name in homes}
    public = {"row_bound": float(np.linalg.norm(unit)), "rows": float(2 * len(names)), "ledger": None}
    return Worlds(base, {**base, **more}, replace(asked, **public))


def published_numbers(result: Run, federation: Federation) -> dict[str, float]:
    """List by their place all numbers that are published of a run."""
    owners = {name: {"rows": federation.shard(name).n_rows} for name in federation.names}
    return numbers_in(split_record({**result.summary(), "owners": owners})[0])


def numbers_in(record: Any, place: str = "") -> dict[str, float]:
    """List by their place all numbers in plain data.

    Examples
    --------
    >>> numbers_in({"rounds": 3, "owners": {"a": {"rows": 7}}, "seed": None})
    {'/rounds': 3.0, '/owners/a/rows': 7.0}
    """
    if is_mapping(record):
        pairs = [(f"{place}/{name}", part) for name, part in record.items()]
    elif is_list(record):
        pairs = [(f"{place}/{number}", part) for number, part in enumerate(record)]
    else:
        return {place: float(record)} if isinstance(record, Real) else {}
    return {name: value for where, part in pairs for name, value in numbers_in(part, where).items()}


def guess_worlds(
    algorithm: Algorithm,
    worlds: Worlds,
    *,
    rounds: int,
    runs: int = 2000,
    seed: int = 0,
    observe: Callable[[Run, Federation], Mapping[str, float]] = published_numbers,
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Run both worlds many times, and guess of each run which one it was.

    Parameters
    ----------
    algorithm : Algorithm
        What is run.
    worlds : Worlds
        Data without and with the unit.
    rounds : int
        Rounds of each run.
    runs : int
        Runs that are counted, half of each world.
    seed : int
        Of the public start, the same in all runs: the attacker knows it.
    observe : function of (run, federation) to mapping
        Numbers that are published of a run.

    Returns
    -------
    scores : array
        0 where a run looks like one without the unit, 1 where it looks like one with it.
    included : bool array
    about : dict
        ``told_by``: the published number that distinguished the worlds, or "the sums"; ``part_of_the_bound``: how much
        of the change that the noise is made for the unit really makes.
    """
    data = [Federation(worlds.of(there)[0]) for there in (False, True)]
    plans = [make_plan(worlds.of(there)[1], algorithm, data[there], rounds, simulation=True) for there in (False, True)]
    included = np.arange(LEARN + runs) % 2 == 1
    scores = np.zeros(included.size)
    seen: list[Mapping[str, float]] = []
    moved = 0.0
    for number in range(included.size):
        there = bool(included[number])
        heard = Listener()
        result = run(algorithm, data[there], rounds=rounds, seed=seed, privacy=(heard, worlds.of(there)[1]))
        out, into = (_replayed(plan, heard, seed) for plan in plans)
        released = [flatten(total, noisy=True)[0].values for _, total, _ in heard.rounds]
        size = math.fsum(float(np.sum((b - a) ** 2)) for a, b in zip(out, into, strict=True))
        moved = max(moved, size)
        if size > 0:
            fits = zip(released, out, into, strict=True)
            scores[number] = math.fsum(float((seen_ - a) @ (b - a)) for seen_, a, b in fits) / size
        seen.append(observe(result, data[there]))
    teller = _telling(seen[:LEARN], included[:LEARN])
    if teller:
        low, high = (np.mean([seen[i][teller] for i in range(LEARN) if included[i] == there]) for there in (0, 1))
        scores = np.array([(numbers[teller] - low) / (high - low) for numbers in seen])
    allowed = _allowed(plans[1]) * math.sqrt(rounds)
    about = {"told_by": teller or "the sums", "part_of_the_bound": math.sqrt(moved) / allowed}
    return scores[LEARN:], included[LEARN:], about


def _telling(seen: list[Mapping[str, float]], included: np.ndarray) -> str:
    """Find a published number that differs between the worlds in every run, and not within them."""
    for place in sorted(set(seen[0]).intersection(*seen)):
        values = np.array([numbers[place] for numbers in seen])
        inside = set(values[included])
        outside = set(values[~included])
        if len(inside) == len(outside) == 1 and inside != outside:
            return place
    return ""


def _allowed(plan: Plan) -> float:
    return next(link.sensitivity for link in plan.channel.links if link.noisy)  # type: ignore[attr-defined]


def _replayed(plan: Plan, heard: Listener, seed: int) -> list[np.ndarray]:
    """Sum what all clients of one world would have sent along these downloads, bounded but without noise."""
    algorithm = plan.algorithm
    federation = plan.federation
    meta = federation.prepare(algorithm.domain)
    bounds = [link for link in plan.channel.links if link.place == 1]
    states = {name: client.begin(algorithm, federation.shard(name), meta, seed, name) for name in federation.names}
    found: list[np.ndarray] = []
    for at, _, down in heard.rounds:
        neutral = plan.channel.sender.neutral(down)
        total = Parcel(np.zeros(0), ())
        for name in federation.names:
            here = replace(at, client=name, participants=meta.clients)
            states[name], up = client.step(
                algorithm, federation.shard(name), states[name], download_for(down, name), here
            )
            parcel = flatten(up, noisy=True)[0]
            for link in bounds:
                parcel = link.encode(parcel, Site(name, here, meta.n_clients, neutral))
            total = parcel if not total.values.size else replace(total, values=total.values + parcel.values)
        for link in reversed(bounds):
            total = link.decode(total, meta.clients, neutral)
        found.append(total.values)
    return found


def bound_from_runs(scores: np.ndarray, included: np.ndarray, delta: float, level: float = 0.95) -> dict[str, Any]:
    r"""Bound ε from below by how often guesses about runs are right.

    Parameters
    ----------
    scores : array
        Above one half: guessed that the unit was there.
    included : bool array
        Whether it was.
    delta : float
        Of the claim.
    level : float
        Confidence of both bounds.

    Returns
    -------
    dict
        ``epsilon``: the larger of two bounds. ``without_a_model``: any (ε, δ) mechanism has misses and false alarms
        :math:`\beta \ge 1 - \delta - e^\varepsilon \alpha`; ``gaussian``: for a mechanism whose releases are Gaussian,
        :math:`\mu \ge \Phi^{-1}(1 - \alpha) - \Phi^{-1}(\beta)` and ε follows from μ and δ. Both take the upper ends of
        Clopper and Pearson's intervals for α and β.

    References
    ----------
    .. [1] M. Nasr et al., "Tight auditing of differentially private machine learning", USENIX Security 2023.
       arXiv:2302.07956

    Examples
    --------
    >>> coin = np.arange(2000) % 2 == 1
    >>> bound_from_runs(coin + 0.0, coin, 1e-5)["epsilon"] > 5
    True
    >>> bound_from_runs(np.random.default_rng(0).random(2000), coin, 1e-5)["epsilon"]
    0.0
    """
    guessed = scores > 0.5
    outside = int((~included).sum())
    inside = int(included.sum())
    alarms = int(guessed[~included].sum())
    misses = int((~guessed[included]).sum())
    alpha = _most(alarms, outside, level)
    beta_ = _most(misses, inside, level)
    pairs = ((alpha, beta_), (beta_, alpha))
    plain = max(math.log(max((1 - delta - b) / a, 1.0)) if b < 1 - delta else 0.0 for a, b in pairs)
    mu = max(0.0, float(ndtri(1 - alpha) - ndtri(beta_)))
    gaussian = analytic_epsilon(mu, delta)
    return {
        "epsilon": max(plain, gaussian),
        "without_a_model": plain,
        "gaussian": gaussian,
        "mu": mu,
        "false_alarms": alarms,
        "misses": misses,
        "runs": outside + inside,
    }


def _most(count: int, of: int, level: float) -> float:
    return float(beta.ppf((1 + level) / 2, count + 1, of - count)) if count < of else 1.0
