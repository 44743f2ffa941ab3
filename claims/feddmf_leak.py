"""Published item vectors tell who their users were: for the most part at a client of fifteen users (AUC of at
least 0.8), and often on MovieLens with 152 users learnt from (0.6); vectors of a client that knew none of them do not.

The attacker knows a user's whole history on the client's items, its vectors, and another client's vectors of the
common items, which show how much of a good fit is no membership. A weak attack: it bounds nothing from above.
"""

from __future__ import annotations

import numpy as np

from fedfactor.algorithms import FedDMF
from fedfactor.audit import item_vector_membership
from fedfactor.core.client_data import Federation
from papers.feddmf.split import movies, split


def claim() -> dict:
    X = (np.random.default_rng(0).random((60, 150)) < 0.2).astype(np.float32)
    few = Federation({"a": X[:30], "b": X[30:]})
    small = item_vector_membership(FedDMF(16, hidden=32, epochs=60, batch_size=128), few, seed=0).figures
    large = item_vector_membership(FedDMF(), split(movies(20)).federation(), seed=0).figures
    told = small["auc_by_comparison"] >= 0.8 and large["auc_by_comparison"] >= 0.6
    untold = max(found["auc_of_another_client"] for found in (small, large)) <= 0.58
    return {"fifteen_users": small, "movielens": large, "holds": bool(told and untold)}
