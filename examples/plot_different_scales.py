"""
Feature scaling: columns in different units
===========================================

Squared errors count large numbers most: a column in thousands decides the fit, one in tenths does not matter. Five
planted patterns, columns whose units span four powers of ten; the rank is chosen by cells that each owner hides.

The picture shows the two curves of held-out errors: of raw columns, where only the largest count, and of scaled ones.
"""

import matplotlib.pyplot as plt
import numpy as np

from fedfactor import select_rank
from fedfactor.plots import plot_rank

rng = np.random.default_rng([0, 100])
X = rng.gamma(0.7, 1, (240, 5)) @ rng.gamma(0.7, 1, (5, 24)) * rng.uniform(0.85, 1.15, (240, 24))
X *= 10 ** rng.uniform(-1, 3, 24)
raw = {"north": X[::3], "south": X[1::3], "west": X[2::3]}

# %%
# What all owners' columns add up to is all that scaling needs.
rms = np.sqrt(sum((rows**2).sum(axis=0) for rows in raw.values()) / len(X))
scaled = {name: rows / rms for name, rows in raw.items()}

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, (title, owners) in zip((left, right), {"raw units": raw, "scaled": scaled}.items(), strict=True):
    found = select_rank(owners, range(2, 9), repeats=2, rounds=40, seed=0)
    plot_rank(found, ax=ax)
    ax.set_title(f"{title}: rank {found.recommended} is recommended")
plt.show()
