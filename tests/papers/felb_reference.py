"""FELB and FALB in plain NumPy, written from the paper's equations; nothing of the library is imported.

Dalleiger, Vreeken and Kamp, "Federated binary matrix factorization using proximal optimization", AAAI 2025. The step
size, which the paper leaves open ("the step-size function η_t is given"), is that of the ELBMF code it builds on.
"""

from __future__ import annotations

import numpy as np


def prox(x, kappa, lam):
    """(5), wrapped into the unit cube."""
    near_zero = (x - kappa * np.sign(x)) / (1 + lam)
    near_one = (x - kappa * np.sign(x - 1) + lam) / (1 + lam)
    return np.clip(np.where(x <= 0.5, near_zero, near_one), 0, 1)


def adaptive_rate(x, lam, Gamma=10.0):
    """λ_t(x) below (10); infinite at 0."""
    with np.errstate(divide="ignore"):
        return lam / (1 - np.exp(-Gamma * x))


def adaptive_prox(x, kappa, lam):
    """(10), for arguments that the unit cube holds, and its limit at 0 and 1."""
    x = np.clip(x, 0, 1)
    zero, one = adaptive_rate(x, lam), adaptive_rate(1 - x, lam)
    near_zero = (x - kappa * np.sign(x)) / (1 + zero)
    shrunk = 1 - 1 / (1 + one)  # λ / (1 + λ), which is 1 where λ is infinite
    near_one = (x - kappa * np.sign(x - 1)) / (1 + one) + shrunk
    return np.clip(np.where(x <= 0.5, near_zero, near_one), 0, 1)


def step(A, u, u_old, v, kappa, lam, beta, prox):
    """Lines 4 and 5: an inertial gradient step of 2(1 − β)/(1 + 2β)/‖vvᵀ‖, then the proximal operator."""
    y = u + beta * (u - u_old)
    eta = 2 * (1 - beta) / (1 + 2 * beta) / np.linalg.norm(v @ v.T)
    return prox(y - eta * (y @ v - A) @ v.T, kappa, lam)


def felb(As, Us, Vs, rounds, b, kappa=0.01, lam=0.01, rate=1.005, beta=0.01, prox=prox):
    """Algorithm 1: b local steps with λ_t = λ rate^t, then the prox of the mean (line 12)."""
    Us_old, shared = list(Us), None
    for r in range(rounds):
        sent = []
        for c, A in enumerate(As):
            u, u_old = Us[c], Us_old[c]
            v = v_old = Vs[c] if shared is None else shared
            for s in range(b):
                lam_t = lam * rate ** (r * b + s)
                u, u_old = step(A, u, u_old, v, kappa, lam_t, beta, prox), u
                v, v_old = step(A.T, v.T, v_old.T, u.T, kappa, lam_t, beta, prox).T, v
            Us[c], Us_old[c] = u, u_old
            sent.append(v)
        shared = prox(sum(sent) / len(sent), kappa, lam * rate ** ((r + 1) * b))
    return shared


def vote(Vs, rule):
    """(6) rounded average, (7) majority vote, (8) logical or."""
    mean = sum(Vs) / len(Vs)
    if rule == "average":
        return np.rint(mean)
    return mean >= 0.5 if rule == "majority" else mean > 0
