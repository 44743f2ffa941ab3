"""
Principal components of three clinics
=====================================

Three clinics see different kinds of breast tumours. The principal components of each clinic alone point in other
directions than those of all rows; the pooled ones follow from one sum of Gram matrices, and each clinic places its own
patients along them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA

from fedfactor import PooledPCA

tumours = load_breast_cancer()
X = tumours.data / tumours.data.std(axis=0)
order = np.argsort(X[:, 0])  # clinics that differ: small, medium and large radii
clinics = dict(zip(("north", "south", "west"), (X[part] for part in np.array_split(order, 3)), strict=True))

# %%
model = PooledPCA(n_components=2).fit(clinics)
pooled = PCA(n_components=2).fit(X)
alone = {name: PCA(n_components=2).fit(rows) for name, rows in clinics.items()}

# %%
# Cosine of the angle between each component and that of all rows in one place.
cosines = {name: np.abs(np.sum(each.components_ * pooled.components_, axis=1)) for name, each in alone.items()}
cosines["federated"] = np.abs(np.sum(model.components_ * pooled.components_, axis=1))
for name, found in cosines.items():
    print(f"{name:10} {found.round(3)}")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for name, U in model.client_factors_.items():
    left.scatter(U[:, 0], U[:, 1], s=8, label=name)
left.set(xlabel="component 1", ylabel="component 2", title="Each clinic places its own rows")
left.legend()
names = list(cosines)
for component in range(2):
    right.bar(np.arange(len(names)) + 0.4 * component, [cosines[n][component] for n in names], 0.35,
              label=f"component {component + 1}")  # fmt: skip
right.set_xticks(np.arange(len(names)) + 0.2, names)
right.set(ylabel="cosine with pooled component", title="Alone, and federated")
right.legend(loc="lower left")
plt.show()
