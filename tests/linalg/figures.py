"""Small calls of every kernel without numba, and the figures that they gave.

``FEDFACTOR_NUMBA=0 python -m tests.linalg.figures`` writes them; compiled loops must give the same.
The tests beside this file compare kernels with oracles written for reading. These figures hold the corners that no
oracle spells out: defaults, penalties beside each other, ties, odd shapes. Whoever changes one of them must mean to.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean import counting as home
from fedfactor.boolean import product
from fedfactor.boolean import proximal_maps as prox
from fedfactor.boolean.pooled import candidates as proposals
from fedfactor.boolean.solvers import asso, elbmf, grecond, mebf, primp, thresholds, zhang
from fedfactor.linalg import block_pivoting as pivoting
from fedfactor.linalg import factors, nndsvd, products, row_clipping
from fedfactor.linalg import missing_values as missing_cells
from fedfactor.linalg import nnls as steps
from fedfactor.linalg import single_pass as one_pass
from fedfactor.linalg.alignment import assignment, barycenter, drift, sinkhorn
from fedfactor.linalg.alignment import kmeans as clusters
from fedfactor.nmf import local_nmf as alternate
from fedfactor.nmf.distributed import hadamard, proximal_descent, sketches
from fedfactor.nmf.distributed import sketch_exposure as exposure
from fedfactor.nmf.pooled import fold_components as folding
from fedfactor.nmf.pooled import private_components
from fedfactor.nmf.pooled.losses import divergence_kernels as divergences
from fedfactor.nmf.pooled.losses import find_loss
from fedfactor.nmf.pooled.losses import kullback_leibler_kernels as counts
from fedfactor.recommend import alternating_least_squares as least_squares
from fedfactor.recommend import holdout_cells as aside
from fedfactor.recommend import implicit_feedback as implicit
from fedfactor.recommend import item_weights, top_items
from fedfactor.recommend import local_cnmf as cnmf
from fedfactor.recommend import rating_model as model
from fedfactor.recommend import rating_statistics as statistics
from fedfactor.recommend.feddmf import negative_sampling as negatives
from fedfactor.recommend.feddmf import network as deep
from fedfactor.recommend.fedsplit import joint_nmf as stacked

WRITTEN = Path(__file__).parent / "figures.json"
CASES: dict[str, Callable[[], Any]] = {}


def case(fn: Callable[[], Any]) -> Callable[[], Any]:
    """Keep a function as a case under its name."""
    CASES[fn.__name__] = fn
    return fn


def rng(seed: int = 0) -> np.random.Generator:
    """Return a stream of its own for each place."""
    return np.random.default_rng([29, seed])


def boiled(value: Any) -> Any:
    """Boil a result down to a few numbers that any changed cell changes."""
    if isinstance(value, dict):
        return {str(key): boiled(part) for key, part in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {name: boiled(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, tuple | list):
        return [boiled(part) for part in value]
    if value is None or isinstance(value, str | bool):
        return value
    if scipy.sparse.issparse(value):
        return [value.nnz, *boiled(value.toarray())]
    cells = np.asarray(value, np.float64) if np.asarray(value).dtype != np.uint64 else np.bitwise_count(value) * 1.0
    if cells.ndim == 0:
        return float(cells)
    finite = np.where(np.isfinite(cells), cells, 1234.5)
    probe = np.random.default_rng(cells.size).uniform(1.0, 2.0, finite.size)
    return [*map(float, cells.shape), float(finite.ravel() @ probe), float(np.abs(finite).max(initial=0.0))]


# ------------------------------------------------------------------------------------------------------------- inputs
def dense(n: int = 23, m: int = 17, k: int = 4, seed: int = 0, kind: str = "f8") -> tuple[np.ndarray, ...]:
    """X, U and V with zeros in all of them."""
    draw = rng(seed)
    U, V = (draw.gamma(0.7, 1.0, shape) * (draw.random(shape) < 0.8) for shape in ((n, k), (k, m)))
    X = (U @ V + 0.3 * draw.random((n, m))) * (draw.random((n, m)) < 0.7)
    return tuple(np.ascontiguousarray(part, kind) for part in (X, draw.random((n, k)), draw.random((k, m)) + 0.05))


def boolean(n: int = 30, m: int = 70, k: int = 5, seed: int = 0) -> tuple[np.ndarray, ...]:
    """A Boolean matrix with some noise, and the factors it was made of."""
    draw = rng(seed)
    U, V = draw.random((n, k)) < 0.3, draw.random((k, m)) < 0.25
    X = (U @ V) ^ (draw.random((n, m)) < 0.06)
    return X * 1.0, (U * 1).astype(np.uint8), (V * 1).astype(np.uint8)


def ratings(n: int = 25, m: int = 14, seed: int = 0) -> Any:
    """Stars from one to five in a sparse matrix; the last user and the last item have none."""
    draw = rng(seed)
    R = np.where(draw.random((n, m)) < 0.4, draw.integers(1, 6, (n, m)), 0.0)
    R[-1] = R[:, -1] = 0
    return scipy.sparse.csr_array(R)


X, U, V = dense()
S = scipy.sparse.csr_array(X)
MASK = rng(5).random(X.shape) < 0.75
G, B = V @ V.T, X @ V.T
XB, UB, VB = boolean()
PB, QB = bits.pack(XB), bits.pack(VB)
R = ratings()
MU = float(R.data.mean())
K = 3
RU, RV = rng(8).random((25, K)) + 0.1, rng(9).random((K, 14)) + 0.1
BU, BV = rng(10).normal(0, 0.3, 25), rng(11).normal(0, 0.3, 14)


# ---------------------------------------------------------------------------------------------------------------- NMF
for _name, _X in {
    "dense": X,
    "sparse": S,
    "columns": scipy.sparse.csc_array(S),
    "fortran": np.asfortranarray(X),
}.items():
    CASES[f"products {_name}"] = lambda A=_X: [
        products.cross(A, V),
        products.sums(U, A),
        products.squared_norm(A),
        products.total(A),
    ]
    CASES[f"one pass {_name}"] = lambda A=_X: [
        one_pass.one_pass(A, V, U, sweeps=2),
        one_pass.one_pass(A, V, U, sweeps=3, l1=0.05, l2=0.2, tol=1e-3),
        one_pass.one_pass(A, V, U, sweeps=1, sums=False),
        one_pass.sums_of_rows(U, A),
    ]
    if _name == "columns":  # shards come by rows
        continue
    CASES[f"counts {_name}"] = lambda A=_X: [
        counts.count_rows(U, A, V, sweeps=2),
        counts.count_rows(U, A, V, sweeps=2, l1=0.1, l2=0.2, bold=True),
        counts.count_sums(U, A, V),
        counts.count_error(A, U, V),
        counts.count_error(A, U, V, background=0.1),
        counts.flat_divergence(A),
    ]

for _n, _m, _k in [
    (1, 1, 1),
    (5, 33, 1),
    (9, 16, 8),
    (40, 70, 9),
    (70, 130, 17),
    (33, 65, 33),
    (3, 300, 2),
    (130, 5, 5),
]:
    for _kind in ("f8", "f4"):
        _A, _W, _H = dense(_n, _m, _k, _n, _kind)
        CASES[f"shapes {_n} {_m} {_k} {_kind}"] = lambda A=_A, W=_W, H=_H: [
            one_pass.one_pass(A, H, W, sweeps=2, l1=0.01),
            one_pass.one_pass(scipy.sparse.csr_array(A), H, W, sweeps=2),
            steps.solve_rows(W, H @ H.T, A @ H.T, sweeps=2),
            products.gram_rows(H),
            products.gram(W),
            missing_cells.solve_rows_masked(W, A, A > 0.4, H, sweeps=2),
            missing_cells.masked_sums(W, A, A > 0.4, H),
            counts.count_rows(W, scipy.sparse.csr_array(A), H, sweeps=2),
            products.sums(W, scipy.sparse.csr_array(A)),
            products.cross(scipy.sparse.csr_array(A), H),
        ]


@case
def masked() -> Any:
    pay = missing_cells.Penalty(l1=0.05, l2=0.1, ridge=0.2, scarce=0.3, few=2.0)
    stored = scipy.sparse.csr_array(np.where(MASK, X + 0.1, 0))
    found = []
    for A, mask in ((X, MASK), (stored, "stored")):
        for penalty in (None, missing_cells.Penalty(l1=0.1), missing_cells.Penalty(l2=0.3), pay):
            found.append(missing_cells.solve_rows_masked(U, A, mask, V, sweeps=2, penalty=penalty))
        found += [
            missing_cells.solve_rows_masked(U, A, mask, V, sweeps=9, tol=1e-2),
            missing_cells.masked_sums(U, A, mask, V),
            missing_cells.ridge_cost(U, A, mask, V, pay),
            missing_cells.observed_squared_norm(A, mask),
            missing_cells.observed_count(A, mask),
            counts.count_rows(U, A, V, mask, sweeps=2, l2=0.1),
            counts.count_sums(U, A, V, mask),
            counts.count_error(A, U, V, mask),
            counts.flat_divergence(A, mask),
            factors.fit_rows(U, A, V, mask, sweeps=2, penalty=pay),
            factors.refit_rows(U, A, V, mask),
            factors.reconstruction(A, U, V, mask),
            counts.row_mass(A, V, mask),
        ]
    N, D, _ = missing_cells.masked_sums(U, X, MASK, V)
    return [*found, missing_cells.masked_step(V, U.T @ U, N, D, sweeps=2, l1=0.1, l2=0.2), pay.complete(V)]


@case
def single_steps() -> Any:
    l2 = np.array([0.1, 0.0, 0.3, 0.2])
    return [
        steps.solve_rows(U, G, B),
        steps.solve_rows(U, G, B, sweeps=5, tol=1e-2, l1=0.3, l2=0.2),
        steps.solve_rows(U, G, B, sweeps=2, l2=l2),
        steps.with_l2(G, 0.5),
        steps.with_l2(G, l2),
        steps.lipschitz(G),
        steps.gradient_step(U, G, B),
        steps.gradient_step(U, G, B, step=0.01),
        steps.multiplicative_step(U, G, B),
        steps.multiplicative_step(U, G, B, eps=0.1),
        steps.objective(U, G, B),
        steps.objective(U, G, B, l1=0.2, l2=0.3),
        steps.squared_error(50.0, U.T @ X, U.T @ U, V),
        steps.account(50.0, U.T @ X, U.T @ U, V),
        steps.inverse_diagonal(np.diag([2.0, 0.0, 4.0])),
    ]


@case
def counted_steps() -> Any:
    N, D = rng(3).random(V.shape), rng(4).random(V.shape) + 0.1
    return [
        counts.count_step(V, N, D),
        counts.count_step(V, N, D, l1=0.1, l2=0.2),
        counts.count_step(V, N, D, bold=True),
        counts.boldly(np.array([0.0, 0.5, 1.0, 2.0, 9.0])),
        counts.first_rows(U * (np.arange(23) % 3 > 0)[:, None], X, counts.row_mass(X, V, None), None),
        counts.row_mass(X, V, None),
        counts.row_mass(X, V, MASK),
    ]


@case
def alternations() -> Any:
    found = []
    for solver in ("gradient", "hals", "multiplicative", "printed"):
        try:
            found.append(alternate.alternate(X, U, V, steps=3, solver=solver))
            found.append(alternate.alternate(X, U, V, steps=3, solver=solver, inertia=0.3, mu=0.2, anchor=V * 1.1))
        except ValueError as error:
            found.append(str(error)[:30])
    found.append(alternate.alternate(X, U, V, steps=4, mu=0.2, relative=True, anchor=V * 1.1))
    return found


@case
def descent() -> Any:
    found = [proximal_descent.proximal_step(U, G, B, 0.7), proximal_descent.proximal_step(U, G, B, 0.7, sweeps=3)]
    for solver in ("proximal", "gradient"):
        found += [
            proximal_descent.schedule(solver, start, growth, t)
            for start, growth in ((None, None), (0.5, 0.25))
            for t in (0, 3)
        ]
        for rule in ("relative", "absolute"):
            found.append(proximal_descent.inexact_step(U, G, B, solver=solver, rule=rule, amount=0.3))
    return found


@case
def starts() -> Any:
    return [
        nndsvd.nndsvd(X, 3),
        nndsvd.nndsvd(S, 5, seed=2),
        nndsvd.randomized_svd(X, 3)[1],
        nndsvd.randomized_svd(S, 3)[1],
        folding.fold_components(U.T @ U, U.T @ X, V, 3, rng(1), starts=3, steps=(3, 2, 4)),
        folding.fold_components(U.T @ U, U.T @ X, V, 2, rng(2), starts=1, steps=(1, 1, 1)),
    ]


@case
def pivots() -> Any:
    C = rng(2).normal(0, 1, (40, 6))
    H = C.T @ C
    F = rng(3).normal(0, 1, (50, 6))
    return [
        pivoting.pivot_rows(H, F),
        pivoting.pivot_rows(H, F, start=F),
        pivoting.pivot_rows(np.zeros((2, 2)), F[:, :2]),
    ]


@case
def private() -> Any:
    Q = rng(7).random((2, 17))
    Q /= np.linalg.norm(Q, axis=1, keepdims=True)
    W = np.hstack([U, rng(8).random((23, 2))])
    pay = missing_cells.Penalty(l2=np.array([0.0, 0, 0, 0, 0.3, 0.3]))
    return [
        private_components.unexplained(X, V, 2, rng(1)),
        private_components.unexplained(S, V, 1, rng(2)),
        private_components.fit_with_private(find_loss("frobenius"), W, X, V, Q, sweeps=2, penalty=pay),
        private_components.fit_with_private(find_loss("frobenius"), W, X, V, Q, MASK, sweeps=2, penalty=pay, turns=1),
    ]


@case
def scaling() -> Any:
    far = V * np.array([[1.0], [0.0], [10.0], [0.1]])
    return [
        factors.row_norms(far),
        factors.unit_rows(far),
        factors.row_sums(far),
        factors.stacked(V, None),
        factors.stacked(V, far),
        [factors.rescale(U, far, how) for how in ("unit", "usage", "free")],
        factors.balance(V, (U * U).sum(0), None, (0.0, 0.3), (0.0, 0.2)),
        factors.balance(V, (U * U).sum(0), U.sum(0), (0.1, 0.0), (0.2, 0.0)),
        factors.balance(V, (U * U).sum(0), U.sum(0), (0.1, 0.3), (0.2, 0.4)),
        factors.match_common(U, V, V[::-1].copy(), 3.0),
        factors.extrapolate(V, far, 0.4),
        factors.odd_factor(V),
        factors.odd_factor(-V),
        factors.odd_factor(V, most=1.0),
        factors.odd_factor(V * np.nan),
        factors.fit_rows(U, X, V, sweeps=2),
        factors.fit_rows(U, S, V, sweeps=2, tol=0.1),
        factors.refit_rows(None, X, V),
        factors.reconstruction(X, U, V),
        factors.reconstruction(S, U, V),
    ]


@case
def looking_ahead() -> Any:
    far = V * np.array([[1.0], [0.5], [10.0], [0.1]])
    return [
        factors.extrapolate_to_units(V, far, 0.4),
        factors.extrapolate_to_units(V.astype("f4"), far, 0.0),
        factors.refit_from(U, G, B),
        steps.solve_and_account(V.T, U.T @ U, (U.T @ X).T, 90.0, sweeps=3),
        steps.solve_and_account(V.T[:0], U.T @ U, (U.T @ X).T[:0], 90.0, sweeps=3),
    ]


@case
def divergent() -> Any:
    found: list[Any] = []
    some = U * (np.arange(23) % 3 > 0)[:, None]
    stored = scipy.sparse.csr_array(np.where(MASK, X + 0.1, 0))
    for beta in (-0.5, 0.0, 0.5, 1.5, 3.0):
        kind = find_loss(beta)
        for A, mask in ((X + 0.01, None), (X + 0.01, MASK), (stored, "stored")):
            N, D, loss = divergences.divergence_sums(kind, U, A, V, mask)
            found += [
                divergences.divergence_rows(kind, U, A, V, mask, sweeps=2),
                divergences.divergence_rows(kind, some, A, V, mask, sweeps=1, l1=0.1, l2=0.2),
                [N, D, loss],
                divergences.divergence_step(kind, V, N, D),
                divergences.divergence_step(kind, V, N - 0.5, D, l1=0.1, l2=0.2),
                divergences.divergence_error(kind, A, U, V, mask, background=0.1),
            ]
    return found


@case
def seldom_together() -> Any:
    pairs = (R.T @ R > 0).astype(np.float64).toarray() * 3
    return [item_weights.unlikely_pairs((R.T @ R).toarray(), pairs, 4, rows=25.0)]


@case
def bounded_rows() -> Any:
    D = rng(1).normal(0, 0.1, V.shape)
    stored = scipy.sparse.csr_array(S)
    seen = rng(2).random(X.shape) < 0.7
    sums = row_clipping.RowSums(4 * D, row_clipping.clipped_sums(U, X, V, clip=0.2, bound=1.0, sweeps=1)[1].half, 0.9)
    return [
        row_clipping.row_squares(X),
        row_clipping.row_squares(S),
        row_clipping.clipped_gradient(U, X, V, bound=1.0, sweeps=2),
        row_clipping.clipped_gradient(U, S, V, bound=0.3, sweeps=1),
        row_clipping.summation_error(1e4, 5, 100),
        [
            row_clipping.clipped_sums(U, rows, V, mask, clip=0.1, bound=0.8, sweeps=2)
            for rows, mask in ((X, None), (X, seen), (stored, None), (stored, "stored"))
        ],
        row_clipping.curved_error(1e6, 5, 100),
        [row_clipping.useful_rounds(z, 1e4, 5, 100) for z in (0.1, 3.0)],
        [row_clipping.noisy_round(V, V * 1.1, D, index=i, rows=50.0) for i in (0, 1, 5)],
        [
            row_clipping.curved_round(V, V * 1.1, sums, clip=0.2, index=i, noise=n, rows=30.0, sweeps=3)
            for i, n in ((0, 0.1), (3, 2.0))
        ],
        row_clipping.split_rows(V),
        row_clipping.doubles(X.astype("f4")),
    ]


# ------------------------------------------------------------------------------------------------------------ Boolean
@case
def packed() -> Any:
    octets = proposals.to_octets(VB)
    return [
        PB,
        bits.pack(scipy.sparse.csr_array(XB)),
        bits.transpose(PB, 70),
        bits.ones_of(PB),
        bits.product(UB, QB),
        bits.count_cells(PB, UB, QB),
        bits.refit(PB, QB),
        bits.refit(PB, QB, sweeps=1),
        octets,
        proposals.from_octets(octets, 70),
        product.boolean_product(UB * 1.0, VB * 1.0),
        product.count(XB, UB * 1.0, VB * 1.0),
        product.count(XB, UB * 1.0, VB * 1.0, XB + rng(1).random(XB.shape) > 0.4),
        product.boolean_refit(XB, VB * 1.0),
        product.match_rows(VB, VB[::-1]),
        product.round_half(V),
        product.hashed_rows(XB, rng(1).integers(0, 256, (3, 70))),
        [
            product.vote(np.array([0, 1, 2, 3, 4]), 4, rule, tie)
            for rule in ("majority", "average", "or", "and")
            for tie in ("one", "zero")
            if _goes(product.vote, np.array([1]), 4, rule, tie)
        ],
    ]


def _goes(fn: Callable[..., Any], *args: Any) -> bool:
    try:
        fn(*args)
    except ValueError:
        return False
    return True


@case
def cells() -> Any:
    found = product.count(XB, UB * 1.0, VB * 1.0)
    both = found + found
    return [
        [one.wrong, one.loss, one.recall, one.precision, one.similarity]
        for one in (found, both, product.Cells(0, 0, 0, 0))
    ]


for _seed, _n, _m in [(1, 12, 9), (2, 20, 65)]:
    _XB, _UB, _VB = boolean(_n, _m, 4, _seed)
    CASES[f"home {_n} {_m}"] = lambda A=_XB, W=_UB, H=_VB: _at_home(A, W, H)
    if _n > 12:  # the solvers take their time without numba
        continue
    CASES[f"solvers {_n} {_m}"] = lambda A=_XB: [
        asso.asso(A, 4),
        asso.asso(A, 3, tau=0.6, reward=2.0, penalty=1.5),
        grecond.grecond(A, 6),
        mebf.mebf(A, 4),
        mebf.mebf(A, 5, share=(0.6, 0.9), leave=0.2),
        primp.primp(A, 4, rng=rng(1), max_iter=30),
        primp.primp(A, 4, rng=rng(1), max_iter=20, cost="error", weight=0.3),
        zhang.zhang(A, 3, rng=rng(1), max_iter=15),
        zhang.zhang(A, 3, rng=rng(1), max_iter=10, lam=0.2, growth=1.3, full_grid=True),
        elbmf.elbmf(A, 3, rng=rng(1), max_iter=60),
        asso.association_candidates(A, 0.5),
        elbmf.elbmf(A, 3, rng=rng(2), max_iter=40, rate=1.1, pull=prox.Pull(kappa=0.05, lam=0.1, beta=0.3)),
    ]


def _at_home(A: np.ndarray, W: np.ndarray, H: np.ndarray) -> Any:
    seen = rng(3).random(A.shape) < 0.8
    found: list[Any] = [
        home.column_counts(A),
        home.column_counts(A, seen),
        home.column_counts(scipy.sparse.csr_array(A), "stored"),
    ]
    packed = bits.pack(H)
    for rows in (home.observed(A), home.observed(A, seen), home.observed(scipy.sparse.csr_array(A))):
        found += [
            rows.ones,
            rows.zeros,
            home.sampled(rows, 0.4, 7).ones,
            home.rows_with(rows, np.array([[1, 1], [0, 2], [-1, -1]])),
        ]
        for penalty, thorough in ((1, True), (3, True), (1, False)):
            chosen = home.choose(rows, packed, penalty=penalty, thorough=thorough)
            hinted = home.choose(rows, packed, np.ascontiguousarray(W), penalty=penalty, thorough=thorough)
            found += [chosen, hinted, home.column_votes(rows, np.ascontiguousarray(W), packed, penalty=penalty)]
        covered = bits.product(W, packed)
        candidates = bits.pack(rng(4).random((6, A.shape[1])) < 0.2)
        found += [
            home.cover_gains(rows, covered, candidates),
            home.cover_gains(rows, covered, candidates, penalty=2),
            home.take(rows, candidates[0], covered.copy()),
            home.take(rows, packed[1], np.zeros_like(covered), penalty=2),
            home.swap_gains(rows, np.ascontiguousarray(W), packed, candidates),
        ]
    return found


@case
def proposed() -> Any:
    together = (XB.T @ XB).astype(np.int64)
    ones = XB.sum(0).astype(np.int64)
    columns = proposals.first_columns(ones, 20)
    named = columns[columns[:, 0] >= 0, 0]
    sets, gains = proposals.candidate_sets(together, ones, np.full(70, 0.9), (0.4, 0.7))
    votes = rng(1).integers(-5, 6, VB.shape)
    return [
        columns,
        proposals.first_columns(ones, 90),
        sets,
        gains,
        proposals.most_promising(sets[0], gains[0], 7),
        proposals.most_promising(sets[1], gains[1], 90),
        proposals.flip_columns(VB, votes, (UB.T @ UB).astype(np.int64)),
        proposals.column_pairs(columns[: len(named)], together[named], ones[named], 12),
    ]


@case
def proximal() -> Any:
    Z = rng(1).normal(0.5, 0.6, (9, 7))
    pulls = [
        prox.Pull(),
        prox.Pull(gamma=2.0, eps=0.2),
        prox.Pull(bound="elbmf", norm="spectral"),
        prox.Pull(printed=True),
        prox.Pull(scale=False, kappa=0.2),
    ]
    W, before = np.clip(U, 0, 1), np.clip(U[::-1], 0, 1)
    return [
        prox.elastic_prox(Z, 0.1, 0.3),
        prox.elastic_prox(Z, 0.1, 0.3, gamma=1.5, eps=0.1),
        prox.elastic_prox(Z, 0.1, 0.3, printed=True),
        prox.adaptive_rate(Z, 0.3),
        prox.adaptive_rate(Z, 0.3, 2.0, 0.5),
        prox.tent_prox(Z, 0.2),
        [prox.step_size(G, pull) for pull in pulls],
        prox.integrality_gap(Z),
        [prox.prox_step(W, before, G, B, pull) for pull in pulls],
        elbmf.relaxed_steps(XB, UB * 0.9, UB * 0.8, VB * 0.7, VB * 0.6, prox.Pull(), 100.0),
    ]


@case
def grids() -> Any:
    W, H = rng(1).random((30, 4)), rng(2).random((4, 70))
    return [
        thresholds.search_thresholds(PB, W, H),
        thresholds.search_thresholds(PB, W, H, cost=thresholds.code_length),
        thresholds.code_length(PB, UB, QB),
        thresholds.code_length(PB, 0 * UB, QB),
        thresholds.wrong_cells(PB, UB, QB),
        thresholds.code_length(0 * PB, 0 * UB, QB),
    ]


# ---------------------------------------------------------------------------------------------------------- alignment
@case
def middles() -> Any:
    Vs = [V[rng(i).permutation(4)] * rng(i).uniform(0.8, 1.2, V.shape) for i in range(5)]
    found: list[Any] = []
    for how in barycenter.BARYCENTERS:
        for alignment in assignment.METHODS:
            found.append(barycenter.barycenter(Vs, how, alignment))
    found += [
        barycenter.barycenter(Vs, weights=[1, 2, 3, 4, 5.0], start=V),
        barycenter.barycenter(Vs, "hierarchical", start=V),
        barycenter.matching_loss(V, Vs),
        barycenter.orthogonality_gap([np.eye(3), np.ones((3, 3)) / 3]),
        barycenter.barycenter(Vs, "progressive", weights=[5, 1, 1, 1, 0.5]),
    ]
    return found


@case
def matched() -> Any:
    other = rng(3).random((4, 17))
    found: list[Any] = [assignment.plan(V, other, method) for method in assignment.METHODS]
    found += [
        assignment.plan(V, other, "sinkhorn", epsilon=0.3, iterations=5),
        assignment.plan(V, other, "knn", neighbours=2),
        assignment.plan(V, V[::-1].copy(), "lap_rho", alpha=0.5),
        assignment.plan(V, other, "lap_rho", alpha=0.9),
        assignment.plan(V, other, "sinkhorn_rho", alpha=0.9),
        assignment.squared_distances(V, other),
        assignment.correlations(V, other),
        assignment.correlations(V * 0, other),
        assignment.align_rows(V[::-1].copy(), V),
        drift.agreement(V, other),
        drift.mean_similarity([V, other, V[::-1].copy()], rng(1)),
        drift.mean_similarity([V * i for i in range(1, 9)], rng(1), most=5),
        [assignment.is_partial(method) for method in assignment.METHODS],
        assignment.permutation(np.eye(4)[[2, 0, 1, 3]]),
        sinkhorn.transport(rng(1).random((4, 3)), np.full(4, 0.25), np.array([0.5, 0.3, 0.2]), 0.1),
        sinkhorn.transport(rng(1).random((4, 3)), np.full(4, 0.25), np.array([0.5, 0.3, 0.2]), 0.01, 7),
        sinkhorn.transport(rng(1).random((3, 3)), np.array([0.5, 0.5, 0.0]), np.full(3, 1 / 3), 0.1, tol=1e-2),
        assignment.unaligned_groups([V, V, other], [np.zeros((4, 4))] * 3),
        assignment.unaligned_groups([V, other], [np.eye(4), np.zeros((4, 4))]),
    ]
    return found


@case
def centres() -> Any:
    rows = np.vstack([rng(i).normal(i, 0.3, (7, 3)) for i in range(4)])
    return [
        clusters.k_means(rows, 3, rng(1)),
        clusters.k_means(rows, 4, rng(2), iterations=1),
        clusters.k_means(np.ones((4, 2)), 3, rng(1)),
        clusters.fuzzy_means(rows, 3, rng(1)),
        clusters.fuzzy_means(rows, 3, rng(1), fuzzifier=3.0, iterations=2),
        clusters.fuzzy_means(rows, 2, rng(1), tol=0.5),
        clusters._spread(rows, 5, rng(3)),
    ]


# ------------------------------------------------------------------------------------------------------------ ratings
for _items in (True, False):
    for _count in (True, False):
        CASES[f"factor step {_items} {_count}"] = lambda items=_items, count=_count: [
            model.factor_step(R, RU, RV, BU, BV, MU, alpha=0.3, by_count=count, items=items),
            model.bias_step(R, RU, RV, BU, BV, MU, eta=0.1, decay=0.2),
            model.move_items(RV, RV * 0.3, RV * 0.2, np.arange(14.0), beta=0.4, by_count=count),
            model.move_item_biases(BV, BV * 2, np.arange(14.0), eta=0.1, decay=0.3),
            cnmf.cnmf(
                R,
                RU,
                RV,
                MU,
                iterations=5,
                item_steps=items,
                penalty=cnmf.RatingPenalty(0.3, 0.2, 0.1, 0.05, 0.02, 0.03, count),
            ),
        ]


@case
def rated() -> Any:
    found = cnmf.cnmf(R, RU, RV, MU, iterations=30, tol=1e-2, user=BU, item=BV)
    return [
        model.user_counts(R),
        model.item_counts(R),
        model.bias_rate(np.arange(5.0), 0.1, 0.3),
        found,
        model.predict_cells(RU, RV, BU, BV, MU, np.array([0, 3, 24]), np.array([1, 5, 13])),
        cnmf.fold_users(R, RV, BV, MU, iterations=5),
        cnmf.fold_users(R, RV, BV, MU, U=RU, user=BU, iterations=3),
        cnmf.bilinear(RU, RV, BU, BV, MU),
        cnmf.fold_bilinear(R, cnmf.bilinear(RU, RV, BU, BV, MU)[1], iterations=4),
        cnmf.starting_factors(5, 4, 2, rng(1)),
        cnmf.starting_factors(5, 4, 2, rng(1), 0.5, np.float32),
        model.observed(R.toarray()),
        model.observed(X, MASK),
        model.observed(R, "stored"),
    ]


@case
def told_aside() -> Any:
    part, held = aside.cells_aside(R, 0.3, 77), aside.cells_aside(R, 0.9, 5)
    return [
        part,
        held,
        aside.only_cells(R, np.arange(R.nnz) % 3 == 0),
        statistics.user_means(R),
        statistics.user_means(R, 1.0),
        statistics.item_residuals(R),
        statistics.pooled_item_biases(np.arange(5.0) - 2, np.arange(5.0)),
        statistics.pooled_item_biases(np.arange(5.0) - 2, np.arange(5.0), 1.0),
        statistics.hold_out(R, 0.3, rng(1)),
        statistics.hold_out(R, 0.5, rng(1), keep_items=False),
        statistics.own_error(R, MU, BV, 2, cnmf.PLAIN, 3, rng(1)),
    ]


@case
def clicks() -> Any:
    C = implicit.confidence(R, 2.0)
    return [
        C,
        implicit.implicit_step(C, RU, RV, alpha=0.2),
        implicit.implicit_gradient(C, RU, RV),
        implicit.ridge_rows(C, R, RV, lam=0.4),
        implicit.ridge_rows(C, R, RV, lam=0.4, G=RV @ RV.T),
        implicit.stored_residuals(R, RU, RV),
        implicit.stored_residuals(R, RU, RV, BU, BV, MU),
    ]


@case
def solved() -> Any:
    halves = least_squares.pair_products(RU)
    W = R.copy()
    W.data = np.ones(R.nnz)
    ridge = np.linspace(0.1, 2.0, 25)
    return [
        least_squares.half_size(3),
        halves,
        least_squares.whole(halves, 3),
        least_squares.ridge_solve(halves, RU, ridge[:, None] * np.ones(3)),
        least_squares.solve_all(least_squares.whole(halves, 3) + np.eye(3), RU),
        least_squares.item_sums(W, R.data, RU),
        least_squares.solve_users(W, R.data, RV.T, ridge[:, None] * np.ones(3)),
        least_squares.solve_users(W, R.data, RV.T, ridge[:, None] * np.ones(3), RV @ RV.T),
    ]


@case
def item_to_item() -> Any:
    gram = (R.T @ R).toarray()
    weight = np.linspace(2.0, 0.1, 14)
    found: list[Any] = [item_weights.units(R, how) for how in ("raw", "binary")]
    order, depth = item_weights.likely_pairs(weight, 6)
    return [
        *found,
        item_weights.balanced_rows(R, 0.5),
        item_weights.balanced_rows(R, 1.0, 2.0),
        item_weights.gram_half(R),
        order,
        depth,
        item_weights.which_pairs(depth),
        item_weights.pairs_within(weight, 0.6),
        item_weights.gram_pairs(R, order, depth),
        item_weights.item_weights(gram, 3.0),
        item_weights.common_pairs(R),
        item_weights.pair_weights(item_weights.gram_pairs(R, order, depth), np.diag(gram).copy(), order, depth, 3.0),
        item_weights.pair_weights(
            item_weights.gram_pairs(R, order, depth), np.diag(gram).copy(), order, depth, 3.0, noisy=True
        ),
    ]


@case
def best() -> Any:
    return [
        top_items.best_items(RU, RV, R, 4),
        top_items.best_items(RU, RV, R, 14),
        top_items.best_items(RU, RV, R, 3, skip_seen=False),
        top_items.best_by_blocks(lambda rows: (RU @ RV)[rows], R, 5),
        top_items.best_by_blocks(lambda rows: (RU @ RV)[rows], R, 5, skip_seen=False),
    ]


@case
def drawn() -> Any:
    ones = negatives.ones_of(R, np.arange(14))
    return [
        ones,
        negatives.zeros_of(ones, R.shape[0] * 14, 9, rng(1)),
        negatives.zeros_of(ones, R.shape[0] * 14, None, rng(1)),
        negatives.training_cells(ones, R.shape[0] * 14, 2, rng(1)),
        negatives.training_cells(ones, R.shape[0] * 14, None, rng(1)),
        negatives.training_cells(ones, R.shape[0] * 14, 1, rng(1), ones[:5]),
    ]


@case
def piled() -> Any:
    rated = rng(2).random(17) < 0.7
    sizes = np.array([1.0, 1.1, 0.9, 1.2, 9.0, 0.01])
    return [
        [stacked.fill_unrated(V, rated, how, rng(1)) for how in ("draw", "mean", "keep")],
        stacked.row_rms(V),
        stacked.outliers(sizes, 3.0),
        stacked.far_off(sizes, 3.0),
        stacked.joint_factors(X, 3),
        stacked.joint_factors(X, 3, iterations=5, seed=3),
        stacked.joint_factors(X, 3, mask=MASK, iterations=6),
        stacked.joint_factors(X, 2, tol=0.1),
    ]


@case
def network() -> Any:
    net = deep.draw_network(3, 5, rng(1))
    a, b = deep.user_part(net, RU), deep.item_part(net, RV.T)
    return [
        net,
        a,
        b,
        deep.pair_logits(net, a[:14], b),
        deep.pair_logits(net, a[:14], b, rng(2).random((14, a.shape[1])) < 0.5),
        deep.probability(np.linspace(-30, 30, 7)),
        deep.probabilities(net, RU, RV.T),
    ]


# ----------------------------------------------------------------------------------------------------------- sketches
@case
def sketched() -> Any:
    found: list[Any] = []
    for kind in ("gaussian", "count", "subsample", "hadamard", "srht"):
        if not _goes(sketches.draw_sketch, kind, 17, 6, rng(1)):
            continue
        drawn = sketches.draw_sketch(kind, 17, 6, rng(1))
        found += [
            drawn.scale,
            drawn.rows(),
            drawn.rows(3, 9),
            sketches.sketch_columns(X, drawn),
            sketches.sketch_columns(S, drawn),
        ]
        found += [sketches.sketch_block(V[:, :8], drawn), sketches.sketch_block(V[:, 5:12], drawn, 5)]
    index, signs = rng(1).choice(32, 6, replace=False), np.sign(rng(2).normal(0, 1, 17))
    return [
        *found,
        [
            sketches.sketch_width(n, ratio, k)
            for n, ratio, k in ((100, 0.1, 5), (100, 0.01, 5), (7, 0.9, 3), (5, 1.0, 9))
        ],
        sketches.sketch_stream(3, "V", 4).random(3),
        hadamard.hadamard_rows(2, 9, index),
        hadamard.hadamard_transform(X, signs, index, 6),
        hadamard.hadamard_transform(X.astype("f4"), signs, index, 6),
    ]


@case
def exposed() -> Any:
    given = [
        (500, 50, 9, None),
        (500, 50, 10, None),
        (500, 50, 2, 25.0),
        (100, 7, 3, 100.0),
        (100, 7, 3, 0.0),
        (40, 60, 1, 3.0),
    ]
    found = [exposure.Exposure(*one) for one in given]
    Y = rng(1).normal(0, 1, (23, 12))
    return [
        [[one.equations, one.threshold, one.solvable, one.rounds_left, len(one.told("X"))] for one in found],
        exposure.effective_support(X),
        exposure.effective_support(0 * X),
        exposure.recover(Y.T @ X, Y),
        exposure.recover(Y.T @ X[:, :4], Y, nonnegative=True),
    ]


def main() -> None:
    """Write down what all cases give."""
    found = {name: boiled(fn()) for name, fn in CASES.items()}
    WRITTEN.write_text(json.dumps(found, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
