"""
Gain of each client over a fit of its own
=========================================

Five owners of very different size factor wines together. Each then asks how well the common components describe wines
of its own that no party has seen, and how well those would that it found alone.

The picture shows both errors for each owner: small owners gain most.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

from fedfactor import PooledNMF

wine = load_wine()
X = wine.data / wine.data.mean(axis=0)
rng = np.random.default_rng(0)
order = rng.permutation(len(X))
sizes = {"tiny": 8, "small": 12, "middle": 20, "large": 40, "huge": 60}
held, owners, start = {}, {}, 0
for name, size in sizes.items():
    rows = X[order[start : start + size]]
    owners[name], held[name] = rows[: size // 2 + 1], rows[size // 2 + 1 :]
    start += size

# %%
together = PooledNMF(n_components=4, random_state=0).fit(owners)
common = {name: -together.score(held[name]) for name in owners}
alone = {name: -PooledNMF(n_components=4, random_state=0).fit(rows).score(held[name]) for name, rows in owners.items()}

# %%
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
places = np.arange(len(owners))
ax.bar(places - 0.2, list(alone.values()), 0.4, label="alone", color="0.7")
ax.bar(places + 0.2, list(common.values()), 0.4, label="together")
ax.set_xticks(places, [f"{name}\n{len(rows)} wines" for name, rows in owners.items()])
ax.set(ylabel="relative error of wines held out", title="Wines of five owners")
ax.legend()
plt.show()
