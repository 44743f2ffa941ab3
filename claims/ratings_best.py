"""Ratings of MovieLens latest-small, all of them, 90 % for training, three seeds, 20 owners, defaults: PooledCF is at
or below Surprise's SVD and LensKit's BiasedMF with theirs, within 20 exchanges; new users with 5 and with 20 ratings
are predicted better than by item means and than by item means with a user bias. Needs ``FEDFACTOR_DATA``; the rivals
need ``FEDFACTOR_RIVALS_PYTHON`` (without it their part is not looked at, and the figures say so).
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from claims._rivals import rivals
from fedfactor import PooledCF
from fedfactor.datasets.loading import load_dataset
from fedfactor.evaluation.metrics.ratings import rmse
from fedfactor.recommend.holdout_cells import only_cells

SEEDS, OWNERS = (0, 1, 2), 20


def claim() -> dict:
    R = sparse.csr_array(load_dataset("movielens_small").X.astype(np.float64))
    figures: dict = {"PooledCF": [], "exchanges": [], "MB_up_of_an_owner": []}
    holds = True
    for seed in SEEDS:
        out = np.random.default_rng([99, seed]).random(R.nnz) < 0.1
        train, test = only_cells(R, ~out), only_cells(R, out)
        model = PooledCF(n_clients=OWNERS, random_state=seed).fit(train)
        T = test.tocoo()
        figures["PooledCF"].append(rmse(T.data, model.predict(T.row, T.col)))
        figures["exchanges"].append(model.n_iter_)
        figures["MB_up_of_an_owner"].append(model.run_.bytes_up / OWNERS / 1e6)
        for name, guess in rivals(train, test, ("Surprise SVD", "LensKit BiasedMF")).items():
            figures.setdefault(name, []).append(rmse(T.data, np.asarray(guess)))
            holds = holds and figures["PooledCF"][-1] <= figures[name][-1]
        print({name: values[-1] for name, values in figures.items()}, flush=True)
    holds = holds and max(figures["exchanges"]) <= 20
    for given in (5, 20):
        found = figures[f"new users, {given} ratings"] = _new_users(R, given)
        holds = holds and found["PooledCF"] < min(found["item means"], found["item means and user bias"])
    figures["rivals_measured"] = "Surprise SVD" in figures
    return {**figures, "holds": bool(holds)}


def _new_users(R: sparse.csr_array, given: int) -> dict[str, float]:
    """Fold in a fifth of the users by some of their ratings, and predict the others."""
    rng = np.random.default_rng(7)
    new = np.sort(rng.choice(R.shape[0], R.shape[0] // 5, replace=False))
    rest = R[np.setdiff1d(np.arange(R.shape[0]), new)]
    model = PooledCF(n_clients=OWNERS, random_state=0).fit(rest)
    counts, mean = np.bincount(rest.indices, minlength=R.shape[1]), rest.data.mean()
    level = mean + (np.asarray(rest.sum(axis=0)).ravel() - counts * mean) / (counts + 5)
    true, guesses = [], {"PooledCF": [], "item means": [], "item means and user bias": []}
    for user in new:
        row = R[[user]]
        order = rng.permutation(row.nnz)
        some, others = order[:given], order[given:]
        known = dict(zip(row.indices[some].tolist(), row.data[some].tolist(), strict=True))
        columns = row.indices[others]
        bias = (row.data[some] - level[row.indices[some]]).sum() / (given + 5)
        true.append(row.data[others])
        guesses["PooledCF"].append(model.fold_in(known).predict([0] * len(columns), columns))
        guesses["item means"].append(level[columns])
        guesses["item means and user bias"].append(np.clip(level[columns] + bias, 0.5, 5))
    return {name: rmse(np.concatenate(true), np.concatenate(parts)) for name, parts in guesses.items()}
