"""Tasks of the benchmark: the default method, what is measured, and the central reference on pooled rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.decomposition import NMF

import fedfactor
from benchmarks.federated.sets import Data
from fedfactor.algorithms import PooledBMF, PooledCF, PooledEASE, PooledNMF
from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean.counting import choose, observed
from fedfactor.boolean.solvers.registry import factor
from fedfactor.evaluation.metrics.ranking import ranking_scores
from fedfactor.recommend.ratings import split_ratings_by_time
from fedfactor.recommend.top_items import best_by_blocks

N = 10
SOLVERS = {"asso": (0,), "grecond": (0,), "mebf": (0,), "elbmf": (0, 1)}
"""Central Boolean solvers and their seeds."""

Measure = Callable[[fedfactor.Run, Data, Data, Mapping[str, np.ndarray]], float]


@dataclass(frozen=True)
class Task:
    """One task.

    ``hides``: whether a fifth of each row's cells is held out; ``central`` returns the reference and its name.
    """

    method: Callable[[int], Any]
    metric: str
    higher: bool
    hides: bool
    measure: Measure
    central: Callable[[Data, Data], tuple[float, str]]


def hold_out(data: Data, seed: int) -> tuple[Data, Data]:
    """Hold out a fifth of the cells of each row, at random."""
    X = scipy.sparse.csr_array(data.X)
    when = scipy.sparse.csr_array((np.random.default_rng([3, seed]).random(X.nnz), X.indices, X.indptr), shape=X.shape)
    train, test = split_ratings_by_time(X, when, 0.2)
    return data._replace(X=train), data._replace(X=test)


def summed_error(run: fedfactor.Run, train: Data, test: Data, rows: Mapping[str, np.ndarray]) -> float:
    return float(run.score.sse)


def rmse_of(foretold: np.ndarray, train: Data, test: Data) -> float:
    cells = test.X.tocoo()
    foretold = np.clip(foretold, train.X.data.min(), train.X.data.max())
    return float(np.sqrt(np.mean((cells.data - foretold) ** 2)))


def rmse(run: fedfactor.Run, train: Data, test: Data, rows: Mapping[str, np.ndarray]) -> float:
    foretold = np.zeros(test.X.nnz)
    cells = test.X.tocoo()
    for name, mine in rows.items():
        kept = run.factors[name]
        place = np.full(test.X.shape[0], -1)
        place[mine] = np.arange(len(mine))
        here = place[cells.row] >= 0
        foretold[here] = np.einsum("pk,kp->p", kept.U[place[cells.row[here]]], kept.V[:, cells.col[here]])
    return rmse_of(foretold, train, test)


def listed(scores: Callable[[np.ndarray], np.ndarray], train: Data, test: Data) -> float:
    return float(ranking_scores(best_by_blocks(scores, train.X, N)[0], test.X).ndcg)


def ndcg(run: fedfactor.Run, train: Data, test: Data, rows: Mapping[str, np.ndarray]) -> float:
    U = np.zeros((train.X.shape[0], run.V.shape[0]))
    for name, mine in rows.items():
        U[mine] = run.factors[name].U
    V = run.V
    return listed(lambda some: np.where(V.any(axis=0), U[some] @ V, -np.inf), train, test)


def sklearn_nmf(beta: float) -> Callable[[Data, Data], tuple[float, str]]:
    def best(train: Data, test: Data) -> tuple[float, str]:
        ends = []
        for place in range(3):
            if beta == 2:
                init = "random" if place else "nndsvda"
                model = NMF(train.rank, init=init, random_state=place, max_iter=2000, tol=1e-6)
            else:
                model = NMF(
                    train.rank, solver="mu", beta_loss=beta, init="random", random_state=place, max_iter=400, tol=0
                )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ends.append(float(model.fit(train.X).reconstruction_err_ ** 2))
        return min(ends), f"scikit-learn NMF, best of three starts of {2000 if beta == 2 else 400} iterations"

    return best


def boolean_solvers(train: Data, test: Data, seconds: float = 120.0) -> tuple[float, str]:
    data: Any = train.X
    if train.X.mean() < 0.1:
        data = scipy.sparse.csr_array(data)
    rows = observed(train.X)
    found: dict[str, float] = {}
    for name, seed in ((name, seed) for name, seeds in SOLVERS.items() for seed in seeds):
        made = factor(data, train.rank, name, rng=np.random.default_rng(seed), time_limit=seconds)
        V = bits.pack(made.V)
        ones, product_ones, both = bits.count_cells(rows.ones, made.U, V)
        wrong = min(ones + product_ones - 2 * both, choose(rows, V)[1][0])
        label = name if made.finished else f"{name} (cut short)"
        found[label] = min(found.get(label, np.inf), wrong)
    best = min(found, key=found.__getitem__)
    return float(found[best]), f"best of ASSO, GreConD, MEBF and ELBMF: {best}"


def surprise_svd(train: Data, test: Data) -> tuple[float, str]:
    """Return Surprise's SVD, factors, regularization and epochs tuned on held-out training ratings."""
    import pandas
    from surprise import SVD, Dataset, Reader  # an optional reference: pip install scikit-surprise

    def fitted(part: Data, goal: Data, setting: tuple[int, float, int]) -> float:
        cells = part.X.tocoo()
        frame = pandas.DataFrame({"u": cells.row, "i": cells.col, "r": cells.data})
        reader = Reader(rating_scale=(cells.data.min(), cells.data.max()))
        factors, reg, epochs = setting
        model = SVD(n_factors=factors, reg_all=reg, n_epochs=epochs, random_state=0)
        model.fit(Dataset.load_from_df(frame, reader).build_full_trainset())
        wanted = goal.X.tocoo()
        return rmse_of(
            np.array([model.predict(a, b).est for a, b in zip(wanted.row, wanted.col, strict=True)]), part, goal
        )

    inner = hold_out(train, 1)
    best = min(product((10, 50), (0.02, 0.05, 0.1), (20, 60)), key=lambda each: fitted(*inner, each))
    return fitted(train, test, best), f"Surprise SVD, tuned: factors, regularization, epochs {best}"


def implicit_als(train: Data, test: Data) -> tuple[float, str]:
    """Return ALS of the package implicit, factors, regularization and weight tuned on held-out training cells."""
    from implicit.als import AlternatingLeastSquares  # an optional reference: pip install implicit

    def fitted(part: Data, goal: Data, setting: tuple[int, float, float]) -> float:
        factors, reg, alpha = setting
        model = AlternatingLeastSquares(factors, regularization=reg, alpha=alpha, random_state=0, num_threads=1)
        model.fit(scipy.sparse.csr_matrix(part.X, dtype=np.float32), show_progress=False)
        U, V = np.asarray(model.user_factors), np.asarray(model.item_factors)
        return listed(lambda some: U[some] @ V.T, part, goal)

    inner = hold_out(train, 1)
    best = max(product((16, 48, 128), (0.1, 5.0, 30.0), (1.0, 8.0)), key=lambda each: fitted(*inner, each))
    return fitted(train, test, best), f"implicit ALS, tuned: factors, regularization, weight {best}"


TASKS = {
    "squared error": Task(PooledNMF, "‖X − UV‖²", False, False, summed_error, sklearn_nmf(2)),
    "counts": Task(
        lambda k: PooledNMF(k, loss="kullback-leibler"),
        "twice the divergence",
        False,
        False,
        summed_error,
        sklearn_nmf(1),
    ),
    "divergences": Task(
        lambda k: PooledNMF(k, loss=0.5), "twice the divergence of β = ½", False, False, summed_error, sklearn_nmf(0.5)
    ),
    "Itakura-Saito": Task(
        lambda k: PooledNMF(k, loss=0), "twice the divergence", False, False, summed_error, sklearn_nmf(0)
    ),
    "β = 1.5": Task(
        lambda k: PooledNMF(k, loss=1.5), "twice the divergence", False, False, summed_error, sklearn_nmf(1.5)
    ),
    "Boolean": Task(PooledBMF, "wrong cells", False, False, summed_error, boolean_solvers),
    "ratings": Task(PooledCF, "RMSE of hidden ratings", False, True, rmse, surprise_svd),
    "lists of items": Task(lambda k: PooledEASE(), "NDCG@10 of hidden items", True, True, ndcg, implicit_als),
}
