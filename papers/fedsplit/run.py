"""The studies of the FedSPLIT paper, its rivals run in the same frame, and its audit; then tables and figures."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.algorithms import FedSPLIT
from fedfactor.core.errors import DataError
from fedfactor.evaluation.recommender_tuning import Tuned
from fedfactor.privacy import PrivacyWarning
from papers.catalogue import Size
from papers.fedsplit import audit, ranking, surprise, tables
from papers.fedsplit.methods import (
    METHODS,
    PRINTED,
    Budget,
    by_grouping,
    by_joint_rank,
    tuned_central,
    tuned_groups,
    untold,
)
from papers.fedsplit.protocol import group_errors, make_split, prepared, present
from papers.kept import Store
from papers.tables import check_studies, write_table

__all__ = ["STUDIES", "repetition", "reproduce"]

Say = Callable[[str], None]


def reproduce(
    out: Path, *, size: Size = "usual", only: tuple[str, ...] = (), seeds: int | None = None, say: Say = print
) -> Path:
    """Run the studies and write tables and figures.

    Parameters
    ----------
    out : Path
        Folder; figures already there are not made again.
    size : {"usual", "quick", "full"}
        Ten repetitions with a dozen trials of tuning (rivals three; half an hour); one repetition of the paper's
        method, barely tuned (minutes); the paper's counts (100 trials, all methods ten times; hours).
    only : tuple of str
        Studies to run: readings, table, sensitivity, groups, audit, ranking, surprise; all when empty.
    seeds : int, optional
        Repetitions of the table; by default 10 and, of MovieLens 1M, 1 (``full``: the paper's 4).
    say : callable
        Told of each figure as it comes.

    Returns
    -------
    Path
        The folder.
    """
    check_studies(only, STUDIES)
    names = present()
    if not names:
        raise DataError(
            "No MovieLens ratings are here. Set FEDFACTOR_DATA to a folder with movielens-latest-small/ratings.csv.gz, "
            "or fetch them: fedfactor.data.load_dataset('movielens_small', download=True)."
        )
    if "movielens_1m" not in names:
        say("movielens_1m is not here and left out: load_dataset('movielens_1m', download=True) fetches it.")
    names = names[:1] if size == "quick" else names
    out.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # what small groups give away is what this experiment measures
        for study, work in STUDIES.items():
            if not only or study in only:
                repeated = study in ("readings", "table", "sensitivity", "groups", "surprise")
                work(out, names, size, say, seeds) if repeated else work(out, names, size, say)
    return out


def table(out: Path, names: list[str], size: Size, say: Say, seeds: int | None = None) -> None:
    """Tables 1 to 3 and Figure 3: the paper's methods on every repetition, the rivals on three."""
    store, found = Store(out / "cells"), {}
    for name in names:
        R, small = prepared(name), name == "movielens_small"
        usual = {"quick": 1, "usual": 10 if small else 1, "full": 10 if small else 4}[size]
        for seed in range(seeds or usual):
            methods = PRINTED if size == "quick" or (size == "usual" and seed >= 3) else tuple(METHODS)
            found[name, seed] = repetition(store, name, R, seed, size, say, methods)
    tables.write(out, found, {name: prepared(name) for name in names})
    from papers.fedsplit import figures

    figures.draw_groups(out, found)
    figures.draw_reading(out, found, tables.printed()["paper"])


def repetition(
    store: Store, name: str, R: Any, seed: int, size: Size, say: Say, methods: Sequence[str] = tuple(METHODS)
) -> dict[str, Any]:
    """Run methods on one split, each with settings chosen inside its training ratings."""
    split, budget = make_split(R, seed), Budget(size)
    key = {"data": name, "seed": seed, "size": size}
    tuned: dict[str, Any] = {
        "central": Tuned(*store.get({**key, "tuned": "central"}, lambda: list(tuned_central(split, budget, seed)))),
        "groups": {
            group: Tuned(*values)
            for group, values in store.get(
                {**key, "tuned": "groups"},
                lambda: {group: list(one) for group, one in tuned_groups(split, budget, seed).items()},
            ).items()
        },
    }
    rows: dict[str, Any] = {
        "members": {group: len(rows) for group, rows in split.groups.items()},
        "ratings": {group: int(owner.nnz) for group, owner in split.owners.items()},
        "methods": {},
    }
    for method in methods:
        work = METHODS[method]
        figures = store.get({**key, "method": method}, lambda work=work: work(split, tuned, budget, seed))
        say(f"{name} {seed} {method}: macro RMSE {figures['macro']:.4f}, MSE {figures['macro_mse']:.4f}")
        rows["methods"][method] = figures
    return rows


def sensitivity(out: Path, names: list[str], size: Size, say: Say, seeds: int | None = None) -> None:
    """What Table 2 owes to the joint rank and to the iterations, neither of which the paper prints."""
    store, rows = Store(out / "cells"), {}
    ranks = (2, 8) if size == "quick" else (2, 4, 6, 8, 12, 16, 20, 30)
    R = prepared(names[0])
    for iterations in (100,) if size == "quick" else (100, 500):
        for seed in range(seeds or (1 if size == "quick" else 10)):
            key = {"data": names[0], "seed": seed, "untold": iterations, "ranks": ranks}
            split = make_split(R, seed)
            found = store.get(key, lambda split=split, i=iterations, s=seed: untold(split, i, ranks, s))
            rows.setdefault(iterations, []).append({
                "members": {group: len(users) for group, users in split.groups.items()},
                "ratings": {group: int(split.test[users].nnz) for group, users in split.groups.items()},
                "methods": {method: {"by_group": errors} for method, errors in found.items()},
            })  # fmt: skip
            say(f"{names[0]} {seed}: groups alone and at {len(ranks)} joint ranks, {iterations} iterations")
    tables.write_sensitivity(out, rows)


def attacks(out: Path, names: list[str], size: Size, say: Say) -> None:
    """Figure 4, and what it leaves out: errors on ratings the adversary does not know, and defences."""
    store, full = Store(out / "cells"), size == "full"
    R = prepared("movielens_small" if "movielens_small" in names else names[0])
    shares = [0.05, 0.25, 0.5, 0.75, 1.0] if not full else [round(0.05 * step, 2) for step in range(1, 21)]
    repetitions = 10 if full else 1
    groups = [rows for seed in range(repetitions) for rows in make_split(R, seed).groups.values()]
    groups = groups[:10] if size == "quick" else groups
    curves = store.get({"audit": "curves", "size": size}, lambda: audit.attack_curves(R, groups, shares))
    say(f"audit: three attacks on {len(groups)} groups")
    rows = []
    for case in audit.cases(size):
        figures = store.get({"audit": case._asdict(), "full": full}, lambda case=case: audit.measure(R, case))
        rows.append({**case._asdict(), **figures})
        say(f"audit {audit.describe(case)}: {audit.summary(figures)}")
    support = store.get({"audit": "support", "full": full}, lambda: audit.support_leak(R, 3 if full else 1))
    say(f"audit support, area under the curve: {support}")
    raters = {}
    for n, k in ((8, 7), (30, 10), (30, 20))[: 1 if size == "quick" else 3]:
        case = audit.Case("sparse", n, k, "as printed", "ratings", 0.25)
        key = {"audit": "raters", **case._asdict()}
        raters[f"{case.members} users, k = {case.k}"] = store.get(key, lambda case=case: audit.by_raters(R, case))
    tables.write_audit(out, rows, support, raters, curves)
    from papers.fedsplit import figures as drawn

    drawn.draw_attacks(out, rows, curves)


def lists(out: Path, names: list[str], size: Size, say: Say) -> None:
    """Implicit feedback: the last fifth of each user's movies, foreseen from the rest."""
    store, rows, rounds = Store(out / "cells"), {}, {"quick": 20, "usual": 100, "full": 200}[size]
    for name in names:
        for method in ranking.METHODS:
            key = {"data": name, "ranking": method, "rounds": rounds}
            rows[name, method] = store.get(key, lambda name=name, method=method: ranking.measure(name, method, rounds))
            say(f"{name} {method}: " + ", ".join(f"{word} {value:.3f}" for word, value in rows[name, method].items()))
    tables.write_ranking(out, rows)


READINGS: dict[str, dict[str, Any]] = {
    "as printed": {},
    "unrated items keep their initial factors": {"unrated": "keep"},
    "Surprise's steps": {"updates": "stable"},
    "Surprise's steps and regularization": {"updates": "stable", "by_count": True},
    "both": {"updates": "stable", "by_count": True, "unrated": "keep"},
}
"""How eqs. 10 to 13 may be read, from the literal reading on; see ``FedSPLIT.as_printed``."""


def readings(out: Path, names: list[str], size: Size, say: Say, seeds: int | None = None) -> None:
    """Errors of FedSPLIT under each reading of its equations: untuned, rank 6 at most, 100 iterations."""
    store, rows, R = Store(out / "cells"), [], prepared(names[0])
    ranks = (2, 8)
    for seed in range(seeds or (1 if size == "quick" else 3)):
        split = make_split(R, seed)
        for reading, settings in READINGS.items():
            key = {"data": names[0], "seed": seed, "reading": settings, "ranks": ranks}
            found = store.get(key, lambda split=split, settings=settings, s=seed: _read(split, settings, ranks, s))
            rows += [{"reading": reading, "joint_rank": rank, "seed": seed, **found[str(rank)]} for rank in ranks]
            say(f"{reading}, split {seed}: macro MSE {[round(found[str(rank)]['macro_mse'], 4) for rank in ranks]}")
    write_table(out / "readings", rows)


def _read(split: Any, settings: dict[str, Any], ranks: tuple[int, ...], seed: int) -> dict[str, Any]:
    base, found = FedSPLIT.as_printed(2, local_components=6, **settings), {}
    for rank, kept in by_joint_rank(base, split.owners, ranks, seed=seed):

        def predict(name: str, rows: Any, columns: Any, kept: Any = kept) -> np.ndarray:
            return np.einsum("pk,pk->p", kept[name].U[rows], kept[name].V.T[columns])

        errors = group_errors(split, predict)
        found[str(rank)] = {name: errors[name] for name in ("macro", "macro_mse")}
    return found


def groupings(out: Path, names: list[str], size: Size, say: Say, seeds: int | None = None) -> None:
    """Hierarchical groups and a group that leaves, which the paper discusses: errors of the groups that remain."""
    store, rows, R = Store(out / "cells"), [], prepared(names[0])
    for seed in range(seeds or (1 if size == "quick" else 3)):
        split = make_split(R, seed)
        found = store.get({"data": names[0], "seed": seed, "study": "groups"}, lambda s=seed, p=split: _grouped(p, s))
        rows += [{"form": form, "seed": seed, **errors} for form, errors in found.items()]
        say(f"groups, split {seed}: {found}")
    write_table(out / "groups", rows)


def _grouped(split: Any, seed: int) -> dict[str, Any]:
    base, found = FedSPLIT.as_printed(2, local_components=6, **READINGS["both"]), {}
    for form, kept in by_grouping(base, split.owners, seed=seed):

        def predict(name: str, rows: Any, columns: Any, kept: Any = kept) -> np.ndarray:
            return np.einsum("pk,pk->p", kept[name].U[rows], kept[name].V.T[columns])

        left = sorted(split.owners)[0]
        rest = replace(split, groups={name: users for name, users in split.groups.items() if name != left})
        errors = group_errors(rest, predict)
        found[form] = {"groups": len(rest.groups), "macro": errors["macro"], "macro_mse": errors["macro_mse"]}
    return found


def other_library(out: Path, names: list[str], size: Size, say: Say, seeds: int | None = None) -> None:
    """Surprise's NMF and SVD, run centrally on the same splits, where Surprise can be found."""
    if not surprise.found():
        say(f"Surprise is not here: {surprise.HOW}")
        return
    store, rows = Store(out / "cells"), {}
    R = prepared(names[0])
    for seed in range(seeds or {"quick": 1, "usual": 3, "full": 10}[size]):
        key = {"data": names[0], "surprise": seed}
        rows[seed] = store.get(key, lambda seed=seed: surprise.measure(make_split(R, seed)))
        say(f"{names[0]} {seed} Surprise: " + ", ".join(f"{k} {v['macro']:.4f}" for k, v in rows[seed].items()))
    means = {k: float(np.mean([row[k]["macro"] for row in rows.values()])) for k in next(iter(rows.values()))}
    tables.write_surprise(out, means)


STUDIES = {
    "readings": readings,
    "table": table,
    "sensitivity": sensitivity,
    "groups": groupings,
    "audit": attacks,
    "ranking": lists,
    "surprise": other_library,
}
