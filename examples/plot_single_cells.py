"""
Single cells of two laboratories
================================

Two laboratories sequence single cells of blood. Counts are divided by the library size of each cell and taken to
logarithms, by each laboratory alone; a batch effect shifts some genes of the second. One component of each
laboratory's own takes it up.

The picture shows marker genes of the common components, and cells by their main component in each laboratory.
"""

import matplotlib.pyplot as plt
import numpy as np

from fedfactor import PooledNMF
from fedfactor.plots import plot_top_features

markers = {
    "T": ["CD3D", "CD3E", "IL7R", "LTB", "CD2"],
    "B": ["MS4A1", "CD79A", "CD79B", "CD74", "TCL1A"],
    "monocyte": ["LYZ", "CD14", "S100A8", "S100A9", "FCN1"],
    "NK": ["NKG7", "GNLY", "GZMB", "PRF1", "KLRD1"],
}
genes = [gene for each in markers.values() for gene in each] + ["RPS2", "ACTB", "MALAT1", "FOS", "JUN"]
rng = np.random.default_rng(0)
profile = np.full((4, 25), 0.2)
for t in range(4):
    profile[t, 5 * t : 5 * t + 5] = rng.uniform(4, 8, 5)
profile[:, 20:23] = 4.0
labs, kinds = {}, {}
for lab, chance in {"Basel": [0.5, 0.2, 0.2, 0.1], "Lund": [0.3, 0.1, 0.4, 0.2]}.items():
    kinds[lab] = rng.choice(4, 200, p=chance)
    depth = rng.lognormal(0, 0.3, (200, 1))
    rate = profile[kinds[lab]] + (np.r_[np.zeros(23), 6.0, 6.0] if lab == "Lund" else 0)
    counts = rng.poisson(depth * rate)
    labs[lab] = np.log1p(1e2 * counts / counts.sum(axis=1, keepdims=True))

# %%
model = PooledNMF(n_components=4, n_private=1, n_init=4, rounds=60, tol=1e-4, random_state=0).fit(labs)
own = model.components_private_["Lund"][0]
print("Lund's own component:", ", ".join(genes[j] for j in np.argsort(-own)[:3]))

# %%
figure, axes = plt.subplots(2, 3, figsize=(10, 6), layout="constrained")
axes = axes.ravel()
for component in range(4):
    plot_top_features(model, genes, component=component, n=5, ax=axes[component])
for ax, lab in zip(axes[4:], labs, strict=True):
    main = model.client_factors_[lab].argmax(axis=1)
    table = np.array([[np.sum((kinds[lab] == kind) & (main == t)) for t in range(4)] for kind in range(4)])
    ax.imshow(table, cmap="Blues")
    ax.set_yticks(range(4), list(markers))
    ax.set(xlabel="main component", title=lab, xticks=range(4))
plt.show()
