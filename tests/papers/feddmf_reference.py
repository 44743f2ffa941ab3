"""FedDMF in plain NumPy with gradients by hand, written from the paper; nothing of the library is imported.

Cheung, "FedDMF: Privacy-preserving user attribute prediction using deep matrix factorization", 2023. The optimizer is
not named there; Adam with its usual constants is the library's choice and a part of this reference.
"""

from __future__ import annotations

import numpy as np


def forward(w, users, items):
    """(1) and Fig. 4: a layer for each side, ReLU, both joined, a layer, ReLU, one unit, sigmoid."""
    p, q = w["P"][users], w["Q"][items]
    user_in, item_in = p @ w["user_weight"] + w["user_bias"], q @ w["item_weight"] + w["item_bias"]
    joined = np.maximum(np.hstack([user_in, item_in]), 0) @ np.vstack([w["join_user"], w["join_item"]]) + w["join_bias"]
    y = 1 / (1 + np.exp(-(np.maximum(joined, 0) @ w["out"] + w["level"])))
    return p, q, user_in, item_in, joined, y


def embedding_loss(Q, place, z, beta, m):
    """(4): β/|P| Σ max(1 − cos, m), over all pairs."""
    own = Q[place]
    cosine = (own * z).sum(1) / np.linalg.norm(own, axis=1) / np.linalg.norm(z, axis=1)
    return beta * np.mean(np.maximum(1 - cosine, m))


def loss(w, users, items, y, place, z, beta, m):
    """(5) = (2) + (4)."""
    return np.mean((forward(w, users, items)[-1] - y) ** 2) + embedding_loss(w["Q"], place, z, beta, m)


def gradient(w, users, items, y, place, z, beta, m):
    """Return the gradient of (5) with respect to every weight."""
    p, q, user_in, item_in, joined, guess = forward(w, users, items)
    g = {name: np.zeros_like(value) for name, value in w.items()}
    d = 2 * (guess - y) * guess * (1 - guess) / len(y)
    hidden = np.maximum(joined, 0)
    g["level"], g["out"] = d.sum(), hidden.T @ d
    d_joined = np.outer(d, w["out"]) * (joined > 0)
    g["join_bias"] = d_joined.sum(0)
    for side, into, x, vectors, places in (
        ("user", user_in, p, "P", users), ("item", item_in, q, "Q", items),
    ):  # fmt: skip
        g[f"join_{side}"] = np.maximum(into, 0).T @ d_joined
        d_in = d_joined @ w[f"join_{side}"].T * (into > 0)
        g[f"{side}_weight"], g[f"{side}_bias"] = x.T @ d_in, d_in.sum(0)
        np.add.at(g[vectors], places, d_in @ w[f"{side}_weight"].T)
    own = w["Q"][place]
    size, other = np.linalg.norm(own, axis=1, keepdims=True), np.linalg.norm(z, axis=1, keepdims=True)
    cosine = (own * z).sum(1, keepdims=True) / size / other
    slope = -(z / size / other - cosine * own / size**2) * (1 - cosine > m)
    np.add.at(g["Q"], place, beta / len(place) * slope)
    return g


def train(w, batches, place, z, beta, m, rate):
    """Adam over batches."""
    w = {name: np.array(value) for name, value in w.items()}
    first = {name: np.zeros_like(value) for name, value in w.items()}
    second = {name: np.zeros_like(value) for name, value in w.items()}
    for t, (users, items, y) in enumerate(batches, start=1):
        for name, g in gradient(w, users, items, y, place, z, beta, m).items():
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.999 * second[name] + 0.001 * g**2
            step = first[name] / (1 - 0.9**t) / (np.sqrt(second[name] / (1 - 0.999**t)) + 1e-8)
            w[name] = w[name] - rate * step
    return w


def federated_average(parts):
    """(3)."""
    return sum(parts) / len(parts)
