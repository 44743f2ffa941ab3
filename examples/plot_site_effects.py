"""
Components that occur at one site only
======================================

Three scanners lay a pattern of their own over the same kind of pictures. Given one component for itself, each owner
keeps its pattern at home; the common components are those of clean pictures.

The picture shows the pattern that each owner found, beside the true one.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from fedfactor import PooledNMF
from fedfactor.plots import mosaic

rng = np.random.default_rng(0)
X = load_digits().data[:600]
patterns, scanners = {}, {}
for owner, name in enumerate(("A", "B", "C")):
    patterns[name] = 16.0 * (rng.random((1, 64)) < 0.15)
    rows = X[owner::3]
    scanners[name] = rows + rng.uniform(0.5, 1, (len(rows), 1)) * patterns[name]

# %%
# With ``n_private`` several starts are tried, and the least summed error chooses among them.
model = PooledNMF(n_components=8, n_private=1, rounds=60, tol=1e-3, random_state=0).fit(scanners)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 4), layout="constrained", width_ratios=(1, 2))
both = np.vstack([each for name in scanners for each in (patterns[name], model.components_private_[name])])
both /= np.linalg.norm(both, axis=1, keepdims=True)
left.imshow(mosaic(both, (8, 8), n_columns=2), cmap="gray_r")
left.set_title("true, found")
right.imshow(mosaic(model.components_, (8, 8), n_columns=4), cmap="gray_r")
right.set_title("what all share")
for ax in (left, right):
    ax.axis("off")
plt.show()
