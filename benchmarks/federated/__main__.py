"""Benchmark of federated factorization: tasks, data sets and splits; error, bytes and exchanges; central references.

``python -m benchmarks.federated`` runs all of it, keeps each figure in ``benchmarks/federated/figures.json`` as it is
found, and writes the page ``docs/results/federated_benchmark.md``. ``--task`` and ``--set`` choose. Add a method by
``--method package.module:function --task ...``, where ``function(rank)`` returns an algorithm of fedfactor's contract;
its rows stand beside those of the defaults. Central references of ratings and lists need ``scikit-surprise`` and
``implicit``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import fedfactor
from benchmarks.federated.sets import SETS, Data
from benchmarks.federated.tasks import TASKS, Task, hold_out
from fedfactor.core.client_data import Federation
from fedfactor.io.partition import row_positions, split_evenly

FIGURES = Path(__file__).parent / "figures.json"
PAGE = Path(__file__).parents[2] / "docs" / "results" / "federated_benchmark.md"
SEEDS = (101, 102, 103)
HEAD = """# Results: benchmark of federated factorization

Each row is one data set under one split of its rows: dealt at random to five clients; every label at a client of its
own; one client with four fifths of the rows and twenty with the rest. `gap` is the median over seeds 101 to 103 of how
much worse the federated result is than the central reference on pooled rows, in percent (below zero: better); `worst`
is the worst seed. Exchanges and megabytes are those of all clients in the run with the first seed, with all parameters
at their defaults. Central references of ratings and lists are tuned on held-out training cells.

A large negative gap means that the reference stopped before its optimum, as scikit-learn does on columns of very
different units; it is no margin of the method. Tasks without rows have not been measured.

`python -m benchmarks.federated` writes this page. Add a method by `--method package.module:function --task TASK`, where
`function(rank)` returns an algorithm: its rows then stand beside those of the defaults.

"""

COLUMNS = ("set", "method", "split", "reference", "gap", "worst", "converged", "exchanges", "MB")


def splits(data: Data) -> dict[str, np.ndarray]:
    """Return the client of each row under each split."""
    n = data.X.shape[0]
    rng = np.random.default_rng(7)
    giant = np.where(rng.random(n) < 0.8, "giant", np.char.add("tiny", rng.integers(20, size=n).astype(str)))
    return {
        "random": split_evenly(n, 5).astype(str),
        "by label": np.asarray(data.y).astype(str),
        "giant and tiny": giant,
    }


def federated(task: Task, method: Any, train: Data, test: Data, clients: np.ndarray, seed: int) -> dict[str, float]:
    rows = row_positions(clients)
    parts = {name: train.X[mine] for name, mine in rows.items()}
    federation = Federation(parts, missing_values="unstored") if task.metric.startswith("RMSE") else Federation(parts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = fedfactor.run(method(train.rank), federation, seed=seed)
    return {
        "value": task.measure(run, train, test, rows),
        "exchanges": run.rounds,
        "megabytes": (run.bytes_up + run.bytes_down) / 1e6,
        "converged": run.status == "converged",
    }


def named(method: str) -> Any:
    """Return the function that a method's words ``package.module:function`` name."""
    module, _, function = method.partition(":")
    return getattr(importlib.import_module(module), function)


def sets_of(task: str) -> dict[str, Any]:
    return SETS[task if task in SETS else "divergences"]


def measure(task_name: str, label: str, method_name: str, kept: dict[str, Any]) -> None:
    """Measure one set under every split, keeping each figure."""
    task = TASKS[task_name]
    data = sets_of(task_name)[label]()
    train, test = hold_out(data, 0) if task.hides else (data, data)
    method = named(method_name) if method_name else task.method
    central = kept.setdefault(f"{task_name} | {label}", {})
    if "central" not in central:
        central["central"], central["reference"] = task.central(train, test)
        FIGURES.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    for split, clients in splits(data).items():
        key = f"{method_name or 'default'} | {split}"
        central[key] = [federated(task, method, train, test, clients, seed) for seed in SEEDS]
        FIGURES.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
        gaps = [gap(task, each["value"], central["central"]) for each in central[key]]
        print(f"{task_name} | {label} | {key} | {np.median(gaps):+.2f} % | {max(gaps):+.2f} %", flush=True)


def gap(task: Task, value: float, reference: float) -> float:
    """Return how much worse a value is than the reference, in percent."""
    ratio = reference / value if task.higher else value / reference
    return 100 * (ratio - 1)


def page(kept: dict[str, Any]) -> str:
    """Return the page with all figures that are kept."""
    out = [HEAD]
    for name, task in TASKS.items():
        found = {key.split(" | ", 1)[1]: value for key, value in kept.items() if key.split(" | ")[0] == name}
        if not found:
            continue
        out.append(f"## {name[0].upper()}{name[1:]}\n\nMeasured: {task.metric}.\n")
        out.append(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
        for label, values in found.items():
            for key, runs in values.items():
                if key in ("central", "reference"):
                    continue
                method, split = key.split(" | ")
                gaps = [gap(task, each["value"], values["central"]) for each in runs]
                ended = sum(each["converged"] for each in runs)
                cells = (
                    *(label, method, split, f"{values['central']:.5g}"),
                    *(f"{np.median(gaps):+.2f}", f"{max(gaps):+.2f}", f"{ended} of {len(runs)}"),
                    *(str(runs[0]["exchanges"]), f"{runs[0]['megabytes']:.2f}"),
                )
                out.append(f"| {' | '.join(cells)} |")
        names = sorted({values["reference"].split(":")[0] for values in found.values()})
        out.append(f"\nReference: {'; '.join(names)}.\n")
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.federated", description=__doc__)
    parser.add_argument("--task", action="append", choices=list(TASKS), help="a task; may be repeated")
    parser.add_argument("--set", action="append", help="a data set; may be repeated")
    parser.add_argument("--method", default="", help="package.module:function, which returns an algorithm for a rank")
    parser.add_argument(
        "--page", action="store_true", help="write the page from the figures that are kept, run nothing"
    )
    options = parser.parse_args()
    kept = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for task in [] if options.page else options.task or TASKS:
        for label in sets_of(task):
            if not options.set or label in options.set:
                measure(task, label, options.method, kept)
    PAGE.write_text(page(kept))


if __name__ == "__main__":
    main()
