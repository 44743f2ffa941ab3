"""Other people's recommenders on the same splits, in an interpreter that has them: ``FEDFACTOR_RIVALS_PYTHON`` names it
(``pip install scikit-surprise implicit lenskit pandas``). A comparison, never a dependency.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

VARIABLE = "FEDFACTOR_RIVALS_PYTHON"

# Runs on its own, in another environment. All with the defaults of their libraries.
SCRIPT = """
import json, sys
import numpy as np, pandas as pd, scipy.sparse as sp
data, out, which = np.load(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
u, i, r, n, m = data["u"], data["i"], data["r"].astype(float), int(data["n"]), int(data["m"])
found = {}
if "Surprise SVD" in which:
    from surprise import SVD, Dataset, Reader
    frame = pd.DataFrame(dict(u=u, i=i, r=r))
    made = SVD(random_state=0).fit(
        Dataset.load_from_df(frame, Reader(rating_scale=(r.min(), r.max()))).build_full_trainset())
    found["Surprise SVD"] = [made.predict(a, b).est for a, b in zip(data["tu"], data["ti"])]
if "LensKit BiasedMF" in which or "LensKit ImplicitMF" in which:
    from lenskit.als import BiasedMFScorer, ImplicitMFScorer
    from lenskit.data import ItemList, from_interactions_df
    from lenskit.pipeline import predict_pipeline
    from lenskit.batch import predict
    frame = from_interactions_df(pd.DataFrame(dict(user_id=u, item_id=i, rating=r)))
if "LensKit BiasedMF" in which:
    pipe = predict_pipeline(BiasedMFScorer()); pipe.train(frame)
    guess = np.full(len(data["tu"]), np.nan)
    for who in np.unique(data["tu"]):
        where = np.flatnonzero(data["tu"] == who)
        lists = predict(pipe, {int(who): ItemList(item_ids=data["ti"][where])}, n_jobs=1).lists()
        guess[where] = np.asarray(list(lists)[0].scores())
    found["LensKit BiasedMF"] = np.clip(guess, r.min(), r.max()).tolist()
def best(S):
    S[u, i] = -np.inf
    return np.argsort(-S, axis=1, kind="stable")[:, :20].tolist()
if "implicit ALS" in which:
    from implicit.als import AlternatingLeastSquares
    made = AlternatingLeastSquares(random_state=0)
    made.fit(sp.csr_matrix((r.astype(np.float32), (u, i)), shape=(n, m)), show_progress=False)
    found["implicit ALS"] = best(np.array(made.user_factors @ made.item_factors.T))
if "LensKit ImplicitMF" in which:
    made = ImplicitMFScorer(); made.train(frame)
    S = np.full((n, m), -1e9)
    S[np.ix_(np.asarray(made.users.ids()), np.asarray(made.items.ids()))] = (
        np.asarray(made.user_embeddings) @ np.asarray(made.item_embeddings).T)
    found["LensKit ImplicitMF"] = best(S)
json.dump(found, open(out, "w"))
"""


def rivals(train: Any, test: Any, which: tuple[str, ...]) -> dict[str, Any]:
    """Return predictions of test ratings, or lists of columns, by name; nothing where no such interpreter is named."""
    python = os.environ.get(VARIABLE)
    if not python:
        return {}
    a, b = train.tocoo(), test.tocoo()
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        parts = {"u": a.row, "i": a.col, "r": a.data, "tu": b.row, "ti": b.col, "n": a.shape[0], "m": a.shape[1]}
        np.savez(where / "data.npz", **parts)
        names = [str(where / "data.npz"), str(where / "out.json"), json.dumps(which)]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": ""}
        subprocess.run([python, "-c", SCRIPT, *names], check=True, capture_output=True, env=environment)
        return json.loads((where / "out.json").read_text())
