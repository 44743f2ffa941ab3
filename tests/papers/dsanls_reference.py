"""DSANLS and the secure methods in plain NumPy, in the orientation of the paper; nothing of the library is imported.

Qian et al., "Fast and secure distributed nonnegative matrix factorization", IEEE TKDE 2020. M ≈ U Vᵀ; in DSANLS node r
holds rows I_r and columns J_r, in the secure methods party r holds the columns J_r, and U is what all share. Random
matrices are arguments, since the paper leaves their generator open.
"""

from __future__ import annotations

import numpy as np


def pcd(W, A, B, mu):
    """Algorithm 3: one pass of proximal coordinate descent on ‖A − W B‖² + μ‖W − W_t‖², W ≥ 0."""
    old, W = W, W.copy()
    for j in range(W.shape[1]):
        others = [i for i in range(W.shape[1]) if i != j]
        rest = A @ B[j] - sum((W[:, i] * (B[i] @ B[j]) for i in others), np.zeros(len(W)))
        W[:, j] = np.maximum((mu * old[:, j] + rest) / (B[j] @ B[j] + mu), 0)
    return W


def pgd(W, A, B, eta):
    """Projected gradient descent on ‖A − W B‖²."""
    return np.maximum(W - 2 * eta * (W @ B @ B.T - A @ B.T), 0)


def dsanls(M, Us, Vs, rows, columns, sketches, sketches_of_rows, step):
    """Algorithm 2: `step(W, A, B, t)` solves a sketched subproblem; sums over nodes are the all-reduce."""
    for t, (S, S_rows) in enumerate(zip(sketches, sketches_of_rows, strict=True)):
        B = sum(V.T @ S[J] for V, J in zip(Vs, columns, strict=True))
        Us = [step(U, M[at] @ S, B, t) for U, at in zip(Us, rows, strict=True)]
        B = sum(U.T @ S_rows[at] for U, at in zip(Us, rows, strict=True))
        Vs = [step(V, M[:, J].T @ S_rows, B, t) for V, J in zip(Vs, columns, strict=True)]
    return np.vstack(Us), np.vstack(Vs)


def local_nmf(M_r, U_r, V_r, steps, first, mu, sketches=None):
    """The inner iterations of Syn-SD and Asyn-SD; with sketches U sees ``M S`` and ``Sᵀ V`` (Asyn-SSD-V)."""
    for t in range(first, first + steps):
        S = np.eye(M_r.shape[1]) if sketches is None else sketches[t - first]
        U_r = pcd(U_r, M_r @ S, V_r.T @ S, mu(t))
        V_r = pcd(V_r, M_r.T, U_r.T, mu(t))
    return U_r, V_r


def syn_sd(Ms, U, Vs, outer, inner, mu):
    """Syn-SD: T₂ local iterations, then the mean of U, T₁ times."""
    for round_ in range(outer):
        made = [local_nmf(M, U, V, inner, round_ * inner, mu) for M, V in zip(Ms, Vs, strict=True)]
        U, Vs = sum(one for one, _ in made) / len(made), [V for _, V in made]
    return U, Vs


def syn_ssd(Ms, U, Vs, steps, inner, mu, shared=None, private=None):
    """Syn-SSD-U (`shared` sketches of U), -V (`private` sketches of a party's columns) and -UV; no last V step.

    Each step moves every U_(r), then averages: the sketches Sᵀ U_(r), or U itself when nothing is sketched or T₂ steps
    are done. V_r then moves with the schedule of the next step, which is how the library counts; the paper prints one
    counter for both.
    """
    Us = [U] * len(Ms)
    for t in range(steps):
        moved = []
        for r, (M, V) in enumerate(zip(Ms, Vs, strict=True)):
            S = np.eye(M.shape[1]) if private is None else private[t][r]
            moved.append(pcd(Us[r], M @ S, V.T @ S, mu(t)))
        if shared is None or (t + 1) % inner == 0:
            U = sum(moved) / len(moved)
            Us, S = [U] * len(Ms), np.eye(len(U))
        else:
            Us, S = moved, shared[t]
        B = sum(one.T @ S for one in moved) / len(moved)
        if t + 1 < steps:
            Vs = [pcd(V, M.T @ S, B, mu(t + 1)) for M, V in zip(Ms, Vs, strict=True)]
    return U, Vs


def asynchronous_server(U, arrivals, rho=1.0):
    """Asyn-SD server: U ← (1 − ω) U + ω U_(r) with ω = ρ / (ρ + t) at the t-th arrival."""
    for t, U_r in enumerate(arrivals, start=1):
        omega = rho / (rho + t)
        U = (1 - omega) * U + omega * U_r
    return U
