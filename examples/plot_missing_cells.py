"""
Imputing missing values
=======================

A third of the pixels of handwritten digits is missing, at every owner. Only observed cells are fitted; the product of
the factors predicts the others.

The picture shows six digits with missing values, as predicted, and as they are.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from fedfactor import PooledNMF
from fedfactor.plots import mosaic

X, y = load_digits(return_X_y=True)
X, y = X[:900], y[:900]
gaps = np.random.default_rng(0).random(X.shape) < 1 / 3
seen = np.where(gaps, np.nan, X)

# %%
# The ridge that keeps rows with few cells sane is chosen from sums.
model = PooledNMF(n_components=12, missing_values=np.nan, tol=1e-3, random_state=0)
U = model.fit_transform(seen, groups=y % 3)
foretold = U @ model.components_
error = np.linalg.norm((X - foretold)[gaps]) / np.linalg.norm(X[gaps])
print(f"relative error of the missing cells: {error:.2f}")

# %%
figure, axes = plt.subplots(3, 1, figsize=(7, 4), layout="constrained")
rows = {"with missing values": np.where(gaps, 0, X), "foretold": foretold, "as they are": X}
for ax, (title, images) in zip(axes, rows.items(), strict=True):
    ax.imshow(mosaic(images[10:18], (8, 8), n_columns=8), cmap="gray_r")
    ax.set_title(title, loc="left", fontsize=10)
    ax.axis("off")
plt.show()
