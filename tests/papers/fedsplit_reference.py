"""FedSPLIT in plain NumPy on full matrices, written from the paper's equations; nothing of the library is imported.

Eren et al., "One-Shot Federated Group Collaborative Filtering", 2022; the numbers are those of its equations.
"""

from __future__ import annotations

import numpy as np


def divided(numerator, denominator):
    """Divide; 0/0 counts as 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator != 0)


def group_mean(X):
    """(6): the mean of the ratings."""
    return X[X > 0].mean()


def estimate(W, H, b_W, b_H, mu):
    """(7)."""
    return W @ H + b_W[:, None] + b_H[None, :] + mu


def cnmf(X, W, H, mu, iterations, alpha, beta, gamma, delta, eta_W, eta_H):
    """(10) to (13) in their order, sums over rated cells only, each with the newest estimates."""
    rated = X > 0
    b_W, b_H = np.zeros(len(X)), np.zeros(X.shape[1])
    for _ in range(iterations):
        err = np.where(rated, X - estimate(W, H, b_W, b_H, mu), 0)
        b_W = b_W + eta_W * (err - gamma * b_W[:, None] * rated).sum(1)
        err = np.where(rated, X - estimate(W, H, b_W, b_H, mu), 0)
        b_H = b_H + eta_H * (err - delta * b_H[None, :] * rated).sum(0)
        X_hat = np.where(rated, estimate(W, H, b_W, b_H, mu), 0)
        W = np.maximum(W * divided(X @ H.T, X_hat @ H.T + alpha * W), 0)
        X_hat = np.where(rated, estimate(W, H, b_W, b_H, mu), 0)
        H = np.maximum(H * divided(W.T @ X, W.T @ X_hat + beta * H), 0)
    return W, H, b_W, b_H


def nmf(X, W, H, iterations):
    """(2), (3)."""
    for _ in range(iterations):
        W = W * divided(X @ H.T, W @ H @ H.T)
        H = H * divided(W.T @ X, W.T @ W @ H)
    return W, H


def fedsplit(groups, starts, joint_start, iterations, joint_iterations, **rates):
    """Algorithm 1 with (14) to (19): every group's predictions, and the joint factors."""
    mu = sum(group_mean(X) for X in groups) / len(groups)  # (14)
    models = [cnmf(X, *start, mu, iterations, **rates) for X, start in zip(groups, starts, strict=True)]
    stacked = np.hstack([H.T for _, H, _, _ in models])  # (15)
    b_H = sum(b for _, _, _, b in models) / len(models)  # (16)
    W_global, H_global = nmf(stacked, *joint_start(stacked), joint_iterations)
    predictions, place = [], 0
    for W, H, b_W, _ in models:
        M = H_global[:, place : place + len(H)]  # (17)
        place += len(H)
        predictions.append(W @ M.T @ W_global.T + b_W[:, None] + b_H[None, :] + mu)  # (18), (19)
    return predictions, W_global
