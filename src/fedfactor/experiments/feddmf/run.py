"""The studies of the FedDMF paper and those past it; then tables and figures."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedfactor.algorithms import FedDMF
from fedfactor.experiments.feddmf import attributes, tables
from fedfactor.experiments.feddmf.methods import ALONE, EQ4, METHODS, SIMPLE, VARIANTS, measure, settings_for
from fedfactor.experiments.feddmf.split import movies, split

__all__ = ["STUDIES", "Work", "reproduce"]

Say = Callable[[str], None]
Plan = Iterator[tuple[float, dict[str, Any], dict[str, dict[str, Any]]]]
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)


def baselines(full: bool) -> Plan:
    """Yield the paper's split and every method (Fig. 5)."""
    yield 0.5, {}, {**METHODS, **{name: {} for name in SIMPLE}}


def users(full: bool) -> Plan:
    """Yield shares of the users at client 1."""
    for share in (0.1, 0.2, 0.3, 0.4, 0.5) if full else (0.1, 0.3, 0.5):
        yield share, {"users": share}, _sweep(full)


def common(full: bool) -> Plan:
    """Yield shares of common items (Fig. 7)."""
    for share in SHARES:
        yield share, {"common": share}, _sweep(full)


def items(full: bool) -> Plan:
    """Yield shares of the items that are not common at client 1."""
    for share in SHARES:
        yield share, {"items": share}, _sweep(full)


def clients(full: bool) -> Plan:
    """Yield more clients than two, half of the items common to all."""
    for number in (2, 4, 8):
        yield number, {"clients": number}, {name: METHODS[name] for name in ("FedDMF", "FedDMF, eq. 4", "no alignment")}


def variants(full: bool) -> Plan:
    """Yield what might close the gap to the upper bound."""
    yield 0.5, {}, VARIANTS


def _sweep(full: bool) -> dict[str, dict[str, Any]]:
    methods = {"FedDMF": METHODS["FedDMF"], "random": {}}
    return {**methods, "FedDMF, eq. 4": EQ4} if full else methods


STUDIES = {
    "baselines": baselines, "variants": variants, "users": users, "common": common, "items": items, "clients": clients,
}  # fmt: skip
OTHER = ("attributes", "letter")


def reproduce(
    out: Path,
    *,
    full: bool = False,
    only: tuple[str, ...] = (),
    seeds: int = 3,
    device: str = "cpu",
    passes: int | None = None,
    say: Say = print,
) -> Path:
    """Run the studies and write tables and figures.

    Parameters
    ----------
    out : Path
        Folder; figures already there are not made again.
    full : bool
        All 9,724 movies and 30 passes over the data as in the paper, else movies of 20 ratings or more and 15 passes.
    only : tuple of str
        Studies: baselines, variants, users, common, items, clients, attributes; and ``letter``, which must be named:
        the paper's settings to the letter, with batches of 32, once.
    seeds : int
        Repetitions, each with a split of its own.
    device : str
        Where clients compute.
    passes : int, optional
        Passes over the data, those at home included.
    say : callable
        Told of each figure as it comes.
    """
    unknown = sorted(set(only) - {*STUDIES, *OTHER})
    if unknown:
        raise ValueError(f"There is no study {unknown[0]!r}. Use one of {', '.join((*STUDIES, *OTHER))}.")
    passes = (30 if full else 15) if passes is None else passes
    work = Work(out, 1 if full else 20, passes, device, say)
    for study, plan in STUDIES.items():
        if not only or study in only:
            rows = [row for seed in range(seeds) for row in work.rows(study, plan(full), seed)]
            tables.write(out, study, rows)
            _draw(out, study, rows)
    if not only or "attributes" in only:
        tables.write_attributes(out, [work.attributes(seed) for seed in range(seeds)])
    if "letter" in only:
        tables.write(out, "letter", [work.letter()])
    return out


def _draw(out: Path, study: str, rows: list[dict[str, Any]]) -> None:
    try:
        from fedfactor.experiments.feddmf import figures

        figures.draw(out, study, rows)
    except ImportError:  # no matplotlib: the tables are there
        return


class Work:
    """Makes figures, each written down as soon as it is there."""

    def __init__(self, out: Path, least: int, passes: int, device: str, say: Say) -> None:
        self.folder, self.least, self.passes, self.say = out / "cells", least, passes, say
        self.place = {} if device == "cpu" else {"device": device}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.X = movies(least)

    def rows(self, study: str, plan: Plan, seed: int) -> Iterator[dict[str, Any]]:
        """Make, or read, every figure of a plan for one repetition."""
        for x, cut, methods in plan:
            part = split(self.X, seed=seed, **cut)
            for method, settings in methods.items():
                asked = {} if method in SIMPLE else settings_for(settings, self.passes, **self.place)
                key = {"least": self.least, "seed": seed, "cut": cut, "method": method, "settings": asked}
                found = self._kept(key, lambda p=part, m=method, s=asked: measure(p, m, s, seed=seed))
                self.say(
                    f"{study} {x} {method} (seed {seed}): F1 own {_said(found['f1_own'])}, foreign "
                    f"{_said(found['f1_foreign'])}, {found['seconds']:.1f} s"
                )
                yield {"study": study, "x": x, "method": method, "seed": seed, **found}

    def attributes(self, seed: int) -> dict[str, Any]:
        """Measure how well user vectors tell what users are like."""
        methods = {"local vectors": ALONE, "FedDMF": METHODS["FedDMF"]}
        asked = {name: settings_for(each, self.passes, **self.place) for name, each in methods.items()}
        key = {"study": "attributes", "least": self.least, "seed": seed, "settings": asked}
        part = split(self.X, seed=seed)
        found = self._kept(key, lambda: attributes.measure_attributes(part, self.least, asked, seed=seed))
        self.say(f"attributes (seed {seed}): {found}")
        return found

    def letter(self) -> dict[str, Any]:
        """Run the paper's settings to the letter, once."""
        paper = FedDMF.paper()
        asked = {
            **EQ4,
            **{name: getattr(paper, name) for name in ("epochs", "batch_size", "learning_rate", "init_scale")},
        }
        asked |= self.place
        key = {"study": "letter", "least": self.least, "settings": asked}
        found = self._kept(key, lambda: measure(split(self.X), "letter", asked, seed=0))
        self.say(
            f"to the letter: F1 own {found['f1_own']:.3f}, foreign {found['f1_foreign']:.3f}, {found['seconds']:.0f} s"
        )
        return {"study": "letter", "x": 0.5, "method": "FedDMF to the letter", "seed": 0, **found}

    def _kept(self, key: dict[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        defaults = {name: getattr(FedDMF(), name) for name in FedDMF.__dataclass_fields__}
        text = json.dumps([key, defaults], sort_keys=True)
        path = self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        if not path.exists():
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(make()))
            os.replace(draft, path)
        return json.loads(path.read_text())


def _said(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
