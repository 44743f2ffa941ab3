"""The studies of the FedDMF paper and those past it; then tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedfactor.algorithms import FedDMF
from papers.catalogue import Size
from papers.feddmf import tables
from papers.feddmf.cells import ATTRIBUTES, Task, figure
from papers.feddmf.methods import ALONE, COMMON, EQ4, METHODS, SIMPLE, VARIANTS, settings_for

__all__ = ["STUDIES", "Work", "reproduce"]

Say = Callable[[str], None]
Plan = Iterator[tuple[float, dict[str, Any], dict[str, dict[str, Any]]]]
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)


def baselines() -> Plan:
    """Yield the paper's split and every method (Fig. 5)."""
    yield 0.5, {}, {**METHODS, **{name: {} for name in SIMPLE}}


def variants() -> Plan:
    """Yield what might close the gap to the upper bound."""
    yield 0.5, {}, VARIANTS


def users() -> Plan:
    """Yield shares of the users at client 1."""
    for share in (0.1, 0.2, 0.3, 0.4, 0.5):
        yield share, _cut(0.5, users=share), SWEEP


def common() -> Plan:
    """Yield shares of common items (Fig. 7)."""
    for share in SHARES:
        yield share, _cut(0.5, common=share), SWEEP


def items() -> Plan:
    """Yield shares of the items that are not common at client 1."""
    for share in SHARES:
        yield share, _cut(0.5, items=share), SWEEP


def clients() -> Plan:
    """Yield more clients than two, half of the items common to all."""
    names = ("DMF, all but the test cells", "FedDMF", "no alignment")
    methods = {name: METHODS[name] for name in names}
    methods |= {"common start, average": {**COMMON, "average": True}, **{name: {} for name in SIMPLE}}
    for number in (2, 4, 8):
        yield number, _cut(2, clients=number), methods


def _cut(usual: float, **cut: float) -> dict[str, Any]:
    """Leave out what is usual, so that the studies share the figures of the usual split."""
    return {name: value for name, value in cut.items() if value != usual}


def letter() -> Plan:
    """Yield the paper's settings to the letter, with batches of 32."""
    paper = FedDMF.paper()
    names = ("batch_size", "learning_rate", "init_scale")
    yield 0.5, {}, {"FedDMF to the letter": {**EQ4, **{name: getattr(paper, name) for name in names}}}


SWEEP: dict[str, dict[str, Any]] = {
    "FedDMF": METHODS["FedDMF"], "FedDMF, eq. 4": EQ4, "random": {}, "popularity × activity": {},
}  # fmt: skip
QUICK = (0.1, 0.5, 0.9, 2, 8)
"""The shares and numbers of clients that a quick run keeps."""
STUDIES: dict[str, Callable[[], Plan]] = {
    "baselines": baselines, "variants": variants, "users": users, "common": common, "items": items, "clients": clients,
    "letter": letter,
}  # fmt: skip


def reproduce(
    out: Path,
    *,
    size: Size = "usual",
    only: tuple[str, ...] = (),
    seeds: int | None = None,
    device: str = "cpu",
    passes: int | None = None,
    patience: int = 0,
    least: int | None = None,
    say: Say = print,
) -> Path:
    """Run the studies and write tables and figures.

    Parameters
    ----------
    out : Path
        Folder; figures already there are not made again.
    size : {"usual", "quick", "full"}
        Movies of 20 ratings or more; of 100 or more (minutes); all 9,724, as in the paper.
    only : tuple of str
        Studies: baselines, variants, users, common, items, clients, attributes; and ``letter``, which must be named:
        the paper's settings to the letter, with batches of 32.
    seeds : int, optional
        Repetitions, each with a split of its own; by default three, in a quick run one.
    device : str
        Where clients compute.
    passes : int, optional
        Passes over the data, those at home included; at most so many, where validation ends training. By default 30, in
        a quick run 10.
    patience : int
        Epochs without a better loss on cells kept aside after which training ends, for every method alike; 0: all
        passes are made.
    least : int, optional
        Movies of at least so many ratings, in the place of what `size` says.
    say : callable
        Told of each figure as it comes.
    """
    unknown = sorted(set(only) - {*STUDIES, ATTRIBUTES})
    if unknown:
        raise ValueError(f"There is no study {unknown[0]!r}. Use one of {', '.join((*STUDIES, ATTRIBUTES))}.")
    extra = ({} if device == "cpu" else {"device": device}) | ({"patience": patience} if patience else {})
    quick = size == "quick"
    seeds, passes = seeds or (1 if quick else 3), passes or (10 if quick else 30)
    work = Work(out, least or {"quick": 100, "usual": 20, "full": 1}[size], passes, extra, say, quick)
    asked = [name for name in (*STUDIES, ATTRIBUTES) if name in (only or {*STUDIES, ATTRIBUTES} - {"letter"})]
    for name in asked:
        rows = [row for seed in range(seeds) for row in work.rows(name, seed)]
        if name == ATTRIBUTES:
            tables.write_attributes(out, rows)
        else:
            tables.write(out, name, rows)
            _draw(out, name, rows)
    return out


def _draw(out: Path, study: str, rows: list[dict[str, Any]]) -> None:
    try:
        from papers.feddmf import figures

        figures.draw(out, study, rows)
        if study == "baselines":
            figures.draw_measures(out, rows)
    except ImportError:  # no matplotlib: the tables are there
        return


class Work:
    """Turns studies into tasks and their figures into rows of tables."""

    def __init__(
        self, out: Path, least: int, passes: int, extra: dict[str, Any], say: Say, quick: bool = False
    ) -> None:
        self.folder, self.least, self.passes, self.extra, self.say = out / "cells", least, passes, extra, say
        self.quick = quick
        self.folder.mkdir(parents=True, exist_ok=True)

    def tasks(self, study: str, seed: int) -> Iterator[tuple[float, Task]]:
        """List what a study needs for one repetition."""
        if study == ATTRIBUTES:
            methods = {"local vectors": ALONE, "FedDMF": METHODS["FedDMF"]}
            asked = {name: settings_for(each, self.passes, **self.extra) for name, each in methods.items()}
            yield 0.5, Task(self.least, seed, {}, ATTRIBUTES, asked)
            return
        for x, cut, methods in STUDIES[study]():
            if self.quick and x not in QUICK:
                continue
            few = dict(list(methods.items())[1:4]) if self.quick and study == "variants" else methods
            for method, settings in few.items():
                asked = {} if method in SIMPLE else settings_for(settings, self.passes, **self.extra)
                yield x, Task(self.least, seed, cut, method, asked)

    def rows(self, study: str, seed: int) -> Iterator[dict[str, Any]]:
        """Make, or read, every figure of a study for one repetition."""
        for x, task in self.tasks(study, seed):
            found = figure(self.folder, task)
            if study == ATTRIBUTES:
                self.say(f"attributes (seed {seed}): {found}")
                yield found
                continue
            own, foreign, tuned = (_said(found[f"f1_{word}"]) for word in ("own", "foreign", "tuned_foreign"))
            self.say(
                f"{study} {x} {task.method} (seed {seed}): F1 own {own}, foreign {foreign}, at the threshold of own "
                f"items {tuned}, {found['seconds']:.1f} s"
            )
            yield {"study": study, "x": x, "method": task.method, "seed": seed, **found}


def _said(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
