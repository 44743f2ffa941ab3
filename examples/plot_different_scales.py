"""
Columns of different units hide components
==========================================

Squared errors count large numbers most: a column in thousands decides the fit, one in tenths does not matter. Six
planted patterns, columns whose units span four powers of ten; the rank is chosen by cells that each owner hides.

The picture shows the two curves of held-out errors: scaled columns show all six patterns, raw ones only those of the
largest columns.
"""

import matplotlib.pyplot as plt
import numpy as np

from fedfactor import select_rank
from fedfactor.data import planted_nmf, split_rows
from fedfactor.plots import plot_rank

data = planted_nmf(180, 24, 6, noise=0.1, n_clients=3, per_client=6, seed=1)
units = 10 ** np.random.default_rng(1).uniform(-1, 3, 24)
raw = split_rows(data.X * units, data.labels)

# %%
# What all owners' columns add up to is all that scaling needs.
rms = np.sqrt(sum((X**2).sum(axis=0) for X in raw.values()) / sum(map(len, raw.values())))
scaled = {name: X / rms for name, X in raw.items()}

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, (title, owners) in zip((left, right), {"raw units": raw, "scaled": scaled}.items(), strict=True):
    found = select_rank(owners, range(2, 9), repeats=2, rounds=40, seed=0)
    plot_rank(found, ax=ax)
    ax.set_title(f"{title}: rank {found.recommended} is recommended")
plt.show()
