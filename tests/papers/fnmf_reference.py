"""FNMF and its rivals in plain NumPy, written from the paper's text alone; nothing of the library is imported.

Dalleiger and Gionis, "Creating coherence in federated non-negative matrix factorization", AAAI 2025. Names follow the
paper: eq. (2) is `drift`'s minimization over plans, Algorithm 1 is `fixed_point`, Algorithm 2 is `fnmf`.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp
from scipy.stats import norm


def squared_distances(A, B):
    """‖a_i − b_j‖² for all pairs."""
    return ((A[:, None, :] - B[None, :, :]) ** 2).sum(2)


def lap(X, Y):
    """D₁: the permutation P that minimizes ½‖X − P Y‖²."""
    rows, columns = linear_sum_assignment(squared_distances(X, Y))
    P = np.zeros((len(X), len(Y)))
    P[rows, columns] = 1
    return P


def significant(X, Y, alpha, pairs=1):
    """One-sided z-test of each correlation; `pairs` > 1 divides the level."""
    rho = np.array([[np.corrcoef(x, y)[0, 1] for y in Y] for x in X])
    z = np.arctanh(np.clip(rho, -1 + 1e-12, 1 - 1e-12)) * np.sqrt(X.shape[1] - 3)
    return 1 - rho, z > norm.isf(alpha / pairs)


def lap_rho(X, Y, alpha=0.05, pairs=1):
    """D₂: one to one on correlation distances, insignificant pairs at infinity, one unaligned node for each row."""
    distance, allowed = significant(X, Y, alpha, pairs)
    k, n = distance.shape
    cost = np.full((k, n + k), 2 + 1e-6)  # dearer than any finite correlation distance
    cost[:, :n] = np.where(allowed, distance, 1e6)
    rows, columns = linear_sum_assignment(cost)
    P = np.zeros((k, n))
    for i, j in zip(rows, columns, strict=True):
        if j < n and allowed[i, j]:
            P[i, j] = 1
    return P


def sinkhorn(X, Y, epsilon=0.05, iterations=20_000):
    """Reading 1 of D₃: entropic transport with both marginals (Cuturi), cost in units of its median."""
    cost = squared_distances(X, Y)
    K = -cost / np.median(cost) / epsilon
    f, g = np.zeros(len(X)), np.zeros(len(Y))
    for _ in range(iterations):
        f = -logsumexp(K + g[None, :], axis=1)
        g = -logsumexp(K + f[:, None], axis=0)
    f = -logsumexp(K + g[None, :], axis=1)
    return np.exp(K + f[:, None] + g[None, :])


def fixed_point(Vs, plan, iterations=50, tol=1e-6):
    """Algorithm 1: start from the mean, align each V_j with it, average, repeat."""
    V = sum(Vs) / len(Vs)
    for _ in range(iterations):
        new = sum(plan(V, one) @ one for one in Vs) / len(Vs)
        done = np.linalg.norm(new - V) <= tol * np.linalg.norm(V)
        V = new
        if done:
            break
    return V


def spectral(A):
    """Largest singular value."""
    return np.linalg.svd(A, compute_uv=False)[0]


def client(X, U, V, middle, steps, gamma, plan, lengths="own block", scaled=False):
    """Algorithm 2, function CLIENT: gradient steps with [·]₊, then the simplified proximal operator (after eq. 3)."""
    for _ in range(steps):
        step = 1 / spectral(V @ V.T if lengths == "own block" else U @ U.T)
        U = np.maximum(U - step * (U @ V @ V.T - X @ V.T), 0)
        step = 1 / spectral(U.T @ U if lengths == "own block" else V.T @ V)
        V = np.maximum(V - step * (U.T @ U @ V - U.T @ X), 0)
        weight = gamma * step if scaled else gamma
        if weight:
            V = (weight * plan(V, middle) @ middle + V) / (1 + weight)
    return U, V


def fnmf(Xs, Us, Vs, rounds, steps, gamma, plan, lengths="own block", scaled=False):
    """Algorithm 2: the mean of the random V_j first, then clients, barycenter, and V_j ← V̄, `rounds` times."""
    middle = sum(Vs) / len(Vs)
    for _ in range(rounds):
        made = [
            client(X, U, V, middle, steps, gamma, plan, lengths, scaled) for X, U, V in zip(Xs, Us, Vs, strict=True)
        ]
        Us = [U for U, _ in made]
        middle = fixed_point([V for _, V in made], plan)
        Vs = [middle] * len(Xs)
    return middle


def ipalm(X, U, V, steps, beta):
    """Pock and Sabach: extrapolate by β, then a projected gradient step of (1 − 2β)/(1 + 2β)/L."""
    U_old, V_old, share = U, V, (1 - 2 * beta) / (1 + 2 * beta)
    for _ in range(steps):
        Y = U + beta * (U - U_old)
        U_old, U = U, np.maximum(Y - share / spectral(V @ V.T) * (Y @ V @ V.T - X @ V.T), 0)
        Y = V + beta * (V - V_old)
        V_old, V = V, np.maximum(Y - share / spectral(U.T @ U) * (U.T @ U @ Y - U.T @ X), 0)
    return U, V


def fedprox_client(X, U, V, middle, steps, mu):
    """Gradient steps on ½‖X − UV‖² + μ/2 ‖V − V̄‖²."""
    for _ in range(steps):
        U = np.maximum(U - (U @ V @ V.T - X @ V.T) / spectral(V @ V.T), 0)
        gradient = U.T @ U @ V - U.T @ X + (mu * (V - middle) if mu else 0)
        V = np.maximum(V - gradient / (spectral(U.T @ U) + mu), 0)
    return U, V


def fedavg(Xs, Us, Vs, rounds, steps, mu=0.0):
    """FedAvg (μ = 0) and FedProx: every V_j starts from the mean, and the mean of all V_j is the next one."""
    middle = None
    for _ in range(rounds):
        starts = Vs if middle is None else [middle] * len(Xs)
        made = [
            fedprox_client(X, U, V, middle, steps, 0.0 if middle is None else mu)  # at first there is no mean
            for X, U, V in zip(Xs, Us, starts, strict=True)
        ]
        Us, middle = [U for U, _ in made], sum(V for _, V in made) / len(made)
    return middle


def mur(X, U, V, steps):
    """Lee and Seung's multiplicative updates."""
    for _ in range(steps):
        U = U * (X @ V.T) / (U @ V @ V.T)
        V = V * (U.T @ X) / (U.T @ U @ V)
    return U, V
