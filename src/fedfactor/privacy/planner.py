"""From a user's words to a channel: what is set, what is checked, and what is refused before round 0."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fedfactor.core.algorithm import Algorithm, Meta, Uplink, uplink_of
from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.client_data import HALVES, Federation
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.transforms import HasNeutralUpload, Transform, check_order
from fedfactor.linalg.row_clipping import useful_rounds
from fedfactor.privacy.accounting import calibrate
from fedfactor.privacy.dp import DP, against_noise, as_parts
from fedfactor.privacy.ledger import Entry, Ledger, rows_fingerprint
from fedfactor.privacy.minimums import Minimums, PrivacyWarning, judge_rows
from fedfactor.privacy.modes import transform_named
from fedfactor.privacy.noise import Clip, Gaussian
from fedfactor.privacy.noise_shares import secure_for_noise
from fedfactor.privacy.pipeline import Books, Channel
from fedfactor.privacy.rare_columns import rare_columns
from fedfactor.privacy.row_statistics import SENSITIVITY, row_survey
from fedfactor.privacy.secure_aggregation.transform import SecureSum
from fedfactor.privacy.sent_uploads import Outbox, run_name
from fedfactor.privacy.subjects import cap_subjects

__all__ = ["Plan", "for_links", "make_plan", "parts_of", "plain_channel", "spread_plan"]

SURVEY_SHARE = 0.05
"""Share of the budget that pays for what must be known before round 0."""

ROW_ROUNDS = 30
CLIENT_ROUNDS = 10
"""Rounds of a private run by default, where its method states no better number: each makes all of them noisier."""


@dataclass(slots=True)
class Plan:
    """What is really run: perhaps other settings, other data, another number of rounds, and a channel."""

    algorithm: Algorithm
    federation: Federation
    rounds: int
    channel: Channel
    original: Federation


@dataclass(slots=True)
class Parts:
    """A user's words, distinguished."""

    dp: DP | None
    links: list[Transform]
    minimums: Minimums
    ledger: Ledger | None


def parts_of(privacy: Any) -> Parts:
    """Distinguish the parts of a user's words."""
    found = Parts(None, [], Minimums(), None)
    given = as_parts(privacy)
    for kind in (DP, Minimums, Ledger):
        if sum(isinstance(part, kind) for part in given) > 1:
            raise IncompatibleError(f"privacy holds two {kind.__name__}, of which only one could count. Keep one.")
    for part in given:
        if isinstance(part, str):
            found.links.append(transform_named(part))
        elif isinstance(part, DP):
            found.dp = part
        elif isinstance(part, Transform):
            found.links.append(part)
        elif isinstance(part, Minimums):
            found.minimums = part
        elif isinstance(part, Ledger):
            found.ledger = part
        else:
            raise IncompatibleError(
                f"privacy holds {part!r}, which is no transform. Use 'secure-sum', dp(...), or a tuple of transforms."
            )
    found.minimums.check()
    return found


def make_plan(
    privacy: Any,
    algorithm: Algorithm,
    federation: Federation,
    rounds: int | None,
    *,
    simulation: bool,
    folder: Path | None = None,
) -> Plan:
    """Turn ``privacy=`` into a plan, or refuse.

    Parameters
    ----------
    privacy : str, DP, Transform, Minimums, Ledger, or a tuple of these
    algorithm : Algorithm
    federation : Federation
    rounds : int, optional
    simulation : bool
        Whether all parties are this one process: minimums then warn instead of refusing.
    folder : Path, optional
        Where the run is kept: its name, its books and its noised uploads then outlive a crash.
    """
    parts = parts_of(privacy)
    if parts.dp is not None:
        _refuse_mixed_precision(federation)
    meta = federation.prepare(algorithm.domain)
    run = run_name(folder)
    secure: Any = next((link for link in parts.links if link.hides), None)
    if parts.dp is not None:
        return _private_plan(parts, parts.dp, secure, algorithm, federation, meta, rounds, run, simulation, folder)
    work = federation
    withheld = np.zeros(0, np.int64)
    algorithm = for_links(parts.links, algorithm)
    more = {"minimums": parts.minimums, "simulation": simulation, "folder": folder}
    channel = plain_channel(parts.links, algorithm, meta, run, _ledgers(parts.ledger), **more)
    if not channel.books.entry.protects:
        rows = {n: federation.shard(n).n_rows for n in federation.names}
        k = getattr(algorithm, "n_components", 1)
        if secure is None:
            judge_rows(k, rows, parts.minimums, simulation=simulation)
        else:
            parts.minimums.judge_clients(rows, k, simulation=simulation)
            work, withheld = rare_columns(federation, parts.minimums, secure, run.encode(), simulation=simulation)
    channel.about["withheld_columns"] = int(withheld.size)
    return Plan(algorithm, work, rounds or algorithm.default_rounds, channel, federation)


def _refuse_mixed_precision(federation: Federation) -> None:
    """Refuse clients of different precision: V has double precision as soon as one client does, and would reveal it."""
    double = {name: federation.facts(name).dtype not in ("float32", *HALVES) for name in federation.names}
    if len(set(double.values())) > 1:
        one = next(name for name in double if double[name])
        raise IncompatibleError(
            f"Client {one!r} has data of double precision and others of single precision. The dtype of V would follow "
            "one client, which no noise covers. Convert all data to float32, or all to float64, before."
        )


def for_links(links: Sequence[Transform], algorithm: Algorithm) -> Algorithm:
    """Set the algorithm as the links need it."""
    if not any(link.equal_weights for link in links):
        return algorithm
    algorithm = _equal_weights(algorithm, alone=any(link.noisy for link in links))
    averages = isinstance(algorithm, HasNeutralUpload)
    return _random_start(algorithm) if averages else algorithm  # a start from sums is for plain sums


def plain_channel(
    links: Sequence[Transform], algorithm: Algorithm, meta: Meta, run: str, ledgers: Sequence[Ledger] = (), **more: Any
) -> Channel:
    """Make a channel of links as they are, or refuse those that cannot protect this algorithm's uploads."""
    check_links(links, algorithm, meta)
    return Channel(tuple(links), algorithm, meta, Books(ledgers, entry_of(links, algorithm, meta, run)), run, **more)


def spread_plan(privacy: Any, algorithm: Algorithm) -> tuple[Algorithm, Callable[[Meta], Channel]]:
    """Plan for an engine whose processes hold their own clients only, so that no rows may be inspected here."""
    parts = parts_of(privacy)
    if parts.dp is not None or parts.ledger is not None or any(link.hides for link in parts.links):
        raise IncompatibleError(
            f"privacy={privacy!r} is not offered where each process holds its own owners only. Processes of one job "
            "belong to one user, who can read them all: keys that they make for each other hide nothing from that "
            "user, and noise that is shared under such keys protects nothing. Between organisations use a federation "
            "(protect = 'dp' or 'secure-sum' in its terms); to simulate it, the local engine. Links such as Clip work."
        )
    algorithm, run = for_links(parts.links, algorithm), run_name(None)
    return algorithm, lambda meta: plain_channel(
        parts.links, algorithm, meta, run, minimums=parts.minimums, simulation=False
    )


def _private_plan(
    parts: Parts,
    asked: DP,
    secure: SecureSum | None,
    algorithm: Algorithm,
    federation: Federation,
    meta: Meta,
    rounds: int | None,
    run: str,
    simulation: bool,
    folder: Path | None,
) -> Plan:
    """Set the noise for a whole run, paying first for what must be known."""
    others = [link for link in parts.links if not link.hides]
    if any(link.place for link in others):
        raise IncompatibleError("dp(...) brings its own bounds and noise: combine it with SecureSum and Minimums only.")
    check_bears(asked, algorithm, meta)
    secure, honest = secure_for_noise(asked, secure, parts.minimums, algorithm, meta)
    share = SURVEY_SHARE if asked.unit != "client" and (asked.row_bound is None or asked.rows is None) else 0.0

    def multiplier(rounds: int) -> float:
        budget = (asked.epsilon, asked.delta, rounds / (1 - share))
        return asked.noise_multiplier or calibrate(*budget, sampling=asked.sampling, accountant=asked.accountant)

    # What a survey may cost does not depend on the number of rounds, which may depend on what it finds.
    before = _Paid(share, rounds or ROW_ROUNDS, multiplier(rounds or ROW_ROUNDS))
    books = _open_books(parts, asked, algorithm, federation, run, before.multiplier, folder)
    work = federation
    size = 0.0
    about = {"survey_share": share}
    if asked.unit == "client":
        rounds = rounds or _fixed_rounds(algorithm) or CLIENT_ROUNDS
        z = multiplier(rounds)
        algorithm = alike_for_noise(algorithm, meta)
    else:
        if asked.unit == "subject":
            work, federation = _capped(asked, federation, meta)
        rows, bound = _surveyed(asked, work, secure, honest, before, books, run, folder)
        spread = spread_of(asked, honest, meta)
        once = None if asked.noise_multiplier else spread * multiplier(1)
        rounds = rounds or _fixed_rounds(algorithm) or _useful_rounds(algorithm, once, rows, meta)
        z = multiplier(rounds)
        algorithm, size = bound_rows(algorithm, meta, bound, rows, spread * z)
        about |= {"row_bound": algorithm.row_clip, "rows": algorithm.row_count}  # type: ignore[attr-defined]
    books.entry = replace(books.entry, noise_multiplier=z)
    links = (*others, *noise_links(asked, z, size, honest, meta), *(() if secure is None else (secure,)))
    check_links(links, algorithm, meta)
    channel = Channel(links, algorithm, meta, books, run, parts.minimums, asked, about, simulation, folder)
    return Plan(algorithm, work, rounds, channel, federation)


def _open_books(
    parts: Parts, asked: DP, algorithm: Algorithm, federation: Federation, run: str, z: float, folder: Path | None
) -> Books:
    """Open the ledgers of the run and of the data set, and refuse a run that one of them cannot afford."""
    ledgers = [_opened(None if folder is None else folder / "ledger.jsonl", asked), *_ledgers(parts.ledger, asked)]
    name = type(algorithm).__name__
    drawn = asked.noise_seed is not None
    books = Books(ledgers, Entry(run, 0, z, asked.unit, asked.sampling, algorithm=name, simulation=drawn))
    for ledger in ledgers:
        if ledger.path is not None:
            ledger.belong(rows_fingerprint(federation))
    books.check_first()
    return books


def _capped(asked: DP, federation: Federation, meta: Meta) -> tuple[Federation, Federation]:
    """Return the rows of subjects that count in the run, and those of the clients at home."""
    assert asked.subject is not None
    work = cap_subjects(federation, asked.subject, asked.cap)
    if isinstance(asked.subject, str):  # at home every row counts again, but a name is no measurement
        federation = cap_subjects(federation, asked.subject, max(1, meta.n_rows or 1))
    return work, federation


@dataclass(frozen=True, slots=True)
class _Paid:
    """The part of the budget for a survey, beside so many rounds with this noise multiplier."""

    share: float
    rounds: int
    multiplier: float

    @property
    def noise(self) -> float:
        """Noise multiplier of the survey."""
        return self.multiplier * math.sqrt((1 - self.share) / (self.share * self.rounds))


def _fixed_rounds(algorithm: Algorithm) -> int | None:
    """Return how many exchanges a method ends after: noise for rounds that do not take place would be wasted."""
    return getattr(type(algorithm), "noisy_rounds", None)


def _useful_rounds(algorithm: Algorithm, noise: float | None, rows: float, meta: Meta) -> int:
    """Return the number of rounds that public numbers suggest; `noise` is that of a single round for all the budget."""
    if noise is None or not (isinstance(algorithm, StatesRounds) and algorithm.noisy_step != "gradient"):
        return ROW_ROUNDS
    return useful_rounds(noise, rows, algorithm.n_components, meta.n_features)


@runtime_checkable
class StatesRounds(Protocol):
    """Takes Newton steps from noisy sums, which need fewer rounds the more noise there is."""

    n_components: int
    noisy_step: str


def _surveyed(
    asked: DP,
    federation: Federation,
    secure: SecureSum | None,
    honest: int,
    paid: _Paid,
    books: Books,
    run: str,
    folder: Path | None,
) -> tuple[float, float]:
    """Return a public number of rows and bound on their norm, from the user or a survey that the budget pays for."""
    bound = asked.row_bound
    rows = asked.rows
    if paid.share:
        # The histogram is two numbers per row, hence its own sensitivity.
        noise = Gaussian(
            paid.noise, SENSITIVITY * asked.cap * asked.known_to, False, asked.noise, honest, touched=asked.known_to
        )
        books.debit(-1, replace(books.entry, round=-1, noise_multiplier=paid.noise, sampling=1.0, what="survey"))
        kept = None if folder is None else folder / "survey.json"
        if kept is not None and kept.exists():  # a run taken up again: the noise is not drawn a second time
            seen_rows, seen_bound = json.loads(kept.read_text())
        else:
            outbox = None if folder is None else Outbox(folder, run)
            seen_rows, seen_bound = row_survey(federation, noise, secure, run.encode(), asked.noise_seed, outbox)
            if kept is not None:
                write_atomic(kept, json.dumps([seen_rows, seen_bound]).encode())
        bound = bound or seen_bound
        rows = rows or seen_rows
    if asked.delta * (rows or 1) > 1:
        warnings.warn(
            f"δ = {asked.delta:g} is more than one over the number of rows (about {rows:.3g}): that would allow to "
            "publish a row outright. Use a smaller delta.",
            PrivacyWarning,
            stacklevel=2,
        )
    return float(rows or 1), float(bound or 1)


def spread_of(asked: DP, honest: int, meta: Meta) -> float:
    """Return the noise of all clients together, in units of one row's share, by that which the accountant counts."""
    parts = meta.n_clients / (honest if asked.noise == "distributed" else 1)
    return math.sqrt(parts) * asked.cap * asked.known_to


def check_bears(asked: DP, algorithm: Algorithm, meta: Meta) -> None:
    """Refuse, before anything is released, an algorithm that noise for this unit cannot protect."""
    name = type(algorithm).__name__
    if against := against_noise(algorithm):
        raise IncompatibleError(f"{name} does not bear noise: {against}")
    if asked.unit == "client":
        return
    if "row_clip" not in {f.name for f in fields(algorithm)}:
        raise IncompatibleError(
            f"{name} has no bound on what one row can change, so no noise could protect a row. Use "
            "PooledNMF, PooledPCA, PooledBMF with solver='proximal', or unit='client'."
        )
    # Settings that do not go together are refused here.
    stated = {name: 1.0 for name in ("row_clip", "row_count", "row_noise") if hasattr(algorithm, name)}
    replace(algorithm, **stated).check(meta)


def bound_rows(algorithm: Algorithm, meta: Meta, bound: float, rows: float, noise: float) -> tuple[Algorithm, float]:
    """Give the algorithm its row bound, a public number of rows and a fixed end; return what one row can change.

    `noise` is the standard deviation of that in the sums, in units of what one row can change.
    """
    changes: dict[str, Any] = {"row_clip": bound, "row_count": rows}
    if hasattr(algorithm, "tol"):
        changes["tol"] = 0.0
    if hasattr(algorithm, "row_noise"):
        changes["row_noise"] = noise
    algorithm = replace(algorithm, **changes)
    found = algorithm.sensitivity(meta)
    if found is None or found[0] != "row":
        raise IncompatibleError(f"{type(algorithm).__name__} states no row-level sensitivity.")
    return algorithm, found[1]


def alike_for_noise(algorithm: Algorithm, meta: Meta) -> Algorithm:
    """Set an algorithm for noise that protects whole clients: equal weights, a public start, no exact numbers."""
    algorithm = _random_start(_equal_weights(algorithm, alone=True))
    algorithm.check(replace(meta, n_rows=None))  # what needs the exact number of rows would reveal it
    return algorithm


def noise_links(asked: DP, z: float, size: float, honest: int, meta: Meta) -> tuple[Transform, ...]:
    """Make the links that bound an upload and add this client's noise; `size` is what one row can change."""
    whole = asked.unit == "client"
    clip = float(asked.clip or 0)
    sensitivity = clip if whole else size * asked.cap * asked.known_to  # both 1, unless the unit is a subject
    touched = min(asked.known_to, meta.n_clients)
    gaussian = Gaussian(z, sensitivity, whole, asked.noise, honest, asked.sampling, touched=touched)
    return (Clip(clip), gaussian) if whole else (gaussian,)


def _equal_weights(algorithm: Algorithm, *, alone: bool) -> Algorithm:
    """Let clients count alike: a weight by rows would let one client count for more than its bound.

    Where the method weighs by rows of all clients together, one client's number of rows would move the uploads of all
    others, which no bound on single uploads covers: `alone` lets each go by its own rows.
    """
    given = getattr(algorithm, "weights", None)
    if alone and given in ("rows", "equal") and getattr(type(algorithm), "weighs_means", False):
        return replace(algorithm, weights="mean")
    return replace(algorithm, weights="equal") if given == "rows" else algorithm


def _random_start(algorithm: Algorithm) -> Algorithm:
    """Begin at random where a start would be folded from sums: with noise, these are sums of squares no longer."""
    start = getattr(algorithm, "start", None)
    if start == "wide":
        raise IncompatibleError("start='wide' folds exact sums, and noise spoils them. Use start='random'.")
    return replace(algorithm, start="random") if start == "auto" else algorithm


def _opened(path: Any, asked: DP) -> Ledger:
    """Open books by their path: a new file gets the budget of its first run, and holds later ones to it."""
    if path is not None and Path(path).exists():
        return Ledger(path, accountant=asked.accountant)
    return Ledger(path, epsilon=asked.epsilon, delta=asked.delta, unit=asked.unit, accountant=asked.accountant)


def _ledgers(own: Ledger | None, asked: DP | None = None) -> list[Ledger]:
    found = [own] if own is not None else []
    if asked is not None and asked.ledger is not None:
        given = asked.ledger
        found.append(given if isinstance(given, Ledger) else _opened(given, asked))
    return found


def entry_of(links: Sequence[Transform], algorithm: Algorithm, meta: Meta, run: str) -> Entry:
    """Describe a round of a channel in the words of a ledger; without noise it costs without a bound."""
    events = (link.event(links, algorithm, meta) for link in links)
    found = next((event for event in events if event is not None), Entry("", 0, 0.0, "client"))
    return replace(found, run=run, algorithm=type(algorithm).__name__)


def check_links(links: Sequence[Transform], algorithm: Algorithm, meta: Meta) -> None:
    """Refuse, before round 0, a channel that cannot carry this algorithm's uploads, or would not protect them."""
    uploads = {kind: spec for kind, spec in algorithm.messages(meta).items() if uplink_of(kind)}
    gathered = [kind.__name__ for kind in uploads if uplink_of(kind) == Uplink.GATHER]
    combining = [link for link in links if link.combines_only()]
    if any(uplink_of(kind) == Uplink.GROUP for kind in uploads):
        raise IncompatibleError(
            f"{type(algorithm).__name__} sums among nodes that hold blocks of the same rows, and no channel protects "
            "such sums. Leave privacy out, or take a method whose uploads are summed, such as PooledNMF."
        )
    if gathered and combining:
        link = type(combining[0]).__name__
        raise IncompatibleError(
            f"{link} hands the server only a combination, but {type(algorithm).__name__} must see each upload "
            f"({gathered[0]}, uplink='gather'). Use a method whose uploads are summed, such as PooledNMF, or leave "
            "privacy out. SecureSum(gathered='clear') sums what is summed, and lets the server see the rest."
        )
    check_order(links)
    for link in links:
        link.check(algorithm, meta, next(iter(uploads.values())))
    for link in links:
        link.check_beside(links, algorithm, meta)
