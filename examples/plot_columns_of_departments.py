"""
Columns that lie with three departments
=======================================

Three departments know the same tumours and have different columns of them: means, standard errors and largest values.
None sees the columns of another. The principal components of the joint table follow from sums over departments; the
scores U are common, and each department keeps its own part of V.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA

import fedfactor
from fedfactor.core.client_data import Shard

tumours = load_breast_cancer()
X = (tumours.data - tumours.data.mean(axis=0)) / tumours.data.std(axis=0)
ids = tuple(f"tumour {row}" for row in range(len(X)))
names = ("means", "errors", "largest")
departments = {
    name: Shard(part, row_ids=ids) for name, part in zip(names, np.split(X, 3, axis=1), strict=True)
}  # fmt: skip

# %%
found = fedfactor.run(fedfactor.PooledPCA(2), departments, split="columns", seed=0)
alone = {name: PCA(n_components=2).fit_transform(shard.X) for name, shard in departments.items()}
pooled = PCA(n_components=2).fit_transform(X)
print(f"Largest difference from all columns in one place: {np.abs(np.abs(found.U) - np.abs(pooled)).max():.1e}")


# %%
# Share of the variance of all 30 columns that two scores explain.
def explained(U):
    """Return the share of the variance of X that linear functions of U explain."""
    left = X - U @ np.linalg.lstsq(U, X)[0]
    return float(1 - (left**2).sum() / (X**2).sum())


shares = {**{name: explained(U) for name, U in alone.items()}, "together": explained(found.U)}
print({name: round(share, 3) for name, share in shares.items()})

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for kind, label in enumerate(tumours.target_names):
    rows = tumours.target == kind
    left.scatter(*found.U[rows].T, s=8, label=label)
left.set(xlabel="component 1", ylabel="component 2", title="Common scores of three departments")
left.legend()
right.bar(list(shares), list(shares.values()))
right.set(ylabel="explained variance of all columns", ylim=(0, 1), title="Columns alone, and together")
plt.show()
