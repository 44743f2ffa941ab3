"""Counts: how near ten rounds with the Kullback-Leibler loss come to the best of three runs of scikit-learn.

A round is one exchange: V goes down once, one sum of the size of V comes up once. What an owner does with its own rows
in between is no round. All exchanges count, those of the start too.

scikit-learn's runs (multiplicative steps, 200 passes) take minutes, so their ends are kept in ``benchmarks/out``, and
so is a run that was broken off.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import sklearn
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning

import fedfactor
from benchmarks.datasets import RANK
from benchmarks.measure import seconds
from fedfactor.algorithms import PooledNMF
from fedfactor.datasets.loading import available, load_dataset
from fedfactor.nmf.pooled.losses.kullback_leibler_kernels import count_error

SETS = {"20 newsgroups": "newsgroups", "reuters": "reuters", "mouse bladder": "mouse_bladder"}
ROUNDS, STARTS, PASSES, AT_ONCE = 10, (0, 1, 2), 200, 10
KEPT = Path(__file__).parent / "out" / "counts.json"


def load(name: str) -> Any:
    """Return counts in single precision."""
    return scipy.sparse.csr_array(load_dataset(name).X.astype(np.float32))


def reference(name: str, X: Any) -> list[float]:
    """Return the divergences that scikit-learn's runs end at, measured once."""
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for state in STARTS:
        key = f"{name} {state} scikit-learn {sklearn.__version__}"
        if key not in known:
            known[key] = divergence(X, *_sklearn_run(X, state, KEPT.with_name(f"counts_{name}_{state}.npz")))
            KEPT.write_text(json.dumps(known, indent=1) + "\n")
    return [known[f"{name} {state} scikit-learn {sklearn.__version__}"] for state in STARTS]


def _sklearn_run(X: Any, state: int, kept: Path) -> tuple[np.ndarray, np.ndarray]:
    """Run scikit-learn, a few passes at a time: its steps know U and V alone, so a run that was ended goes on there."""
    kept.parent.mkdir(exist_ok=True)
    begin: dict[str, Any] = {}
    done = 0
    if kept.exists():
        with np.load(kept) as held:
            begin, done = {"W": held["U"], "H": held["V"]}, int(held["passes"])
    rows = scipy.sparse.csr_matrix(X)
    while done < PASSES:
        model = NMF(
            RANK, solver="mu", beta_loss="kullback-leibler", init="custom" if begin else "random", random_state=state,
            max_iter=AT_ONCE, tol=0,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            U = model.fit_transform(rows, **begin)
        begin, done = {"W": U, "H": model.components_}, done + AT_ONCE
        np.savez(kept, U=U, V=model.components_, passes=done)
    kept.unlink()
    return begin["W"], begin["H"]


def divergence(X: Any, U: np.ndarray, V: np.ndarray) -> float:
    """Return ``Σ x log(x / uv) − x + uv`` in double precision."""
    return count_error(X.astype(np.float64), U.astype(np.float64), V.astype(np.float64))[0] / 2


def compare(name: str) -> dict[str, Any]:
    """Return by how much the divergence after ten rounds lies above scikit-learn's best, for each start."""
    X = load(name)
    theirs = reference(name, X)
    best = min(theirs)
    above, times = [], []
    for seed in STARTS:
        algorithm = PooledNMF(RANK, loss="kullback-leibler", tol=0)
        took, run = seconds(lambda a=algorithm, seed=seed: fedfactor.run(a, {"all": X}, rounds=ROUNDS, seed=seed))
        times.append(took)
        above.append(divergence(X, run.factors["all"].U, run.V) / best - 1)
    return {
        "rounds": ROUNDS, "above_best": above, "seconds": min(times),
        "sklearn_above_best": [one / best - 1 for one in theirs],
    }  # fmt: skip


def table() -> dict[str, Any]:
    """Measure and print every set whose file is here."""
    found = {}
    for label, name in SETS.items():
        if not available()[name]:
            print(f"{label}: skipped, its file is not in the data folder (set FEDFACTOR_DATA).", flush=True)
            continue
        one = found[label] = compare(name)
        ends = ", ".join(f"{above:+.2%}" for above in one["above_best"])
        print(
            f"counts, {label}: {ends} of the best of three runs of scikit-learn after {ROUNDS} rounds "
            f"({one['seconds']:.2f} s)",
            flush=True,
        )
    return found


if __name__ == "__main__":
    table()
