"""Other people's programs beside ours: torchnmf, scikit-learn's mini-batch NMF, LensKit and implicit; where installed.

torchnmf, LensKit and implicit are looked for in the interpreter that ``FEDFACTOR_RIVALS_PYTHON`` names, else in this
one; what is not there is skipped with a line. They run in a process of their own, and time only their own fit.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import fedfactor
from benchmarks.against import run_mini_batch, run_ours
from benchmarks.datasets import RANK
from benchmarks.measure import explicit_error, seconds
from fedfactor.datasets.loading import available, load_dataset
from fedfactor.evaluation.metrics.ratings import rmse

# Runs on its own, in another environment. `torchnmf.fit` looks at its loss every tenth pass, which is part of it.
SCRIPT = """
import json, sys, time
import numpy as np
what, data, out, rank = sys.argv[1], np.load(sys.argv[2]), sys.argv[3], int(sys.argv[4])
found = {}
def timed(name, fit):
    fit()
    times = []
    for _ in range(3):
        began = time.perf_counter(); made = fit(); times.append(time.perf_counter() - began)
    found[name] = {"seconds": sorted(times)[1], **made}
try:
    if what == "torchnmf":
        import torch
        from torchnmf.nmf import NMF
        def fit_on(device):
            X = torch.tensor(data["X"], device=device)
            def fit():
                torch.manual_seed(0)
                model = NMF(X.shape, rank=rank).to(device)
                model.fit(X, beta=2, tol=0, max_iter=200)
                U, V = model.H.detach().cpu().numpy().astype(float), model.W.detach().cpu().numpy().T.astype(float)
                Y = data["X"].astype(float)
                return {"error": float(np.linalg.norm(Y - U @ V) / np.linalg.norm(Y))}
            return fit
        timed("torchnmf, CPU", fit_on("cpu"))
        if torch.cuda.is_available():
            timed("torchnmf, GPU", fit_on("cuda"))
    else:
        u, i, r, n, m = data["u"], data["i"], data["r"].astype(float), int(data["n"]), int(data["m"])
        if what == "implicit":
            import scipy.sparse as sp
            from implicit.cpu.als import AlternatingLeastSquares
            X = sp.csr_matrix((r.astype(np.float32), (u, i)), shape=(n, m))
            def fit():
                model = AlternatingLeastSquares(factors=rank, iterations=10, random_state=0)
                model.fit(X, show_progress=False)
                return {}
            timed("implicit ALS", fit)
        else:
            import pandas as pd
            from lenskit.als import BiasedMFScorer
            from lenskit.data import ItemList, RecQuery, from_interactions_df
            frame = from_interactions_df(pd.DataFrame(dict(user_id=u, item_id=i, rating=r)))
            made = {}
            def fit():
                model = BiasedMFScorer(embedding_size=rank, epochs=10)
                model.train(frame)
                made["model"] = model
                return {}
            timed("LensKit BiasedMF", fit)
            guess = np.full(len(data["tu"]), r.mean())
            for who in np.unique(data["tu"]):
                where = np.flatnonzero(data["tu"] == who)
                scores = made["model"](RecQuery(user_id=int(who)), ItemList(item_ids=data["ti"][where])).scores()
                guess[where] = np.where(np.isfinite(scores), scores, r.mean())
            away = np.clip(guess, r.min(), r.max()) - data["tr"]
            found["LensKit BiasedMF"]["rmse"] = float(np.sqrt(np.mean(away ** 2)))
except ImportError as error:
    found = {"skipped": str(error)}
json.dump(found, open(out, "w"))
"""


def theirs(what: str, **arrays: Any) -> dict[str, Any]:
    """Return what another program took, by name; nothing, after a line, where it is not installed."""
    python = os.environ.get("FEDFACTOR_RIVALS_PYTHON") or sys.executable
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "data.npz", Path(folder) / "out.json"
        np.savez(data, **arrays)
        environment = {**os.environ, "PYTHONPATH": ""}
        ran = subprocess.run(
            [python, "-c", SCRIPT, what, str(data), str(out), str(RANK)], env=environment, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        found = (
            json.loads(out.read_text()) if out.exists() else {"skipped": (ran.stderr.strip() or "?").splitlines()[-1]}
        )
    if "skipped" in found:
        print(f"{what}: skipped ({found['skipped']}). Install it, or name an interpreter that has it in "
              "FEDFACTOR_RIVALS_PYTHON.", flush=True)  # fmt: skip
        return {}
    return found


def to_their_error(X: Any) -> dict[str, Any]:
    """Compare on one matrix: the time that others take, and ours until we are at their error."""
    took, U, V = run_mini_batch(X, 0)
    others = {"scikit-learn, mini-batch": {"seconds": took, "error": explicit_error(X, U, V)}}
    if isinstance(X, np.ndarray):
        others |= theirs("torchnmf", X=X)
    for one in others.values():
        ran = [run_ours(X, one["error"], 0) for _ in range(3)]
        one["ours"] = statistics.median(took for took, _ in ran)
        one["our_error"] = explicit_error(X, ran[0][1].factors["all"].U, ran[0][1].V)
        one["ratio"] = one["seconds"] / one["ours"]
    return others


def on_ratings() -> dict[str, Any]:
    """Compare on ratings: LensKit by ratings held out, implicit by signs of interest; ten iterations of each."""
    if not available()["movielens_small"]:
        print("ratings: skipped, MovieLens is not in the data folder (set FEDFACTOR_DATA).", flush=True)
        return {}
    R = scipy.sparse.csr_array(load_dataset("movielens_small").X.astype(np.float64))
    out = np.random.default_rng(0).random(R.nnz) < 0.1
    C = R.tocoo()
    u, i, r, tu, ti, tr = (part[where] for where in (~out, out) for part in (C.row, C.col, C.data))
    train = scipy.sparse.csr_array((r, (u, i)), shape=R.shape)
    given = {"u": u, "i": i, "r": r, "tu": tu, "ti": ti, "tr": tr, "n": R.shape[0], "m": R.shape[1]}
    others = theirs("LensKit", **given) | theirs("implicit", **given)
    for name, one in others.items():
        model = fedfactor.PooledCF(
            RANK, rounds=11, random_state=0, feedback="implicit" if name == "implicit ALS" else "explicit"
        )
        one["ours"] = statistics.median(seconds(lambda m=model: m.fit(train))[0] for _ in range(3))
        one["ratio"] = one["seconds"] / one["ours"]
        if "rmse" in one:
            one["our_rmse"] = rmse(tr, model.predict(tu, ti))
    return others


def table(sets: dict[str, Any]) -> dict[str, Any]:
    """Measure and print."""
    found = {label: to_their_error(X) for label, X in sets.items()} | {"MovieLens, small": on_ratings()}
    for label, others in found.items():
        for name, one in others.items():
            reached = f", error {one['error']:.4f}" if "error" in one else ""
            if "rmse" in one:
                reached = f", RMSE {one['rmse']:.3f} (ours {one['our_rmse']:.3f})"
            print(f"{name} on {label}: {one['seconds']:.2f} s{reached}; ours {one['ours']:.2f} s: {one['ratio']:.1f}x",
                  flush=True)  # fmt: skip
    return found
