"""
Boolean factorization of binary data
====================================

Four shops know who bought what. Five baskets recur, and each shop sees two of them only. Votes over what the shops find
apart miss most baskets; sums find them all, and so the table ``X ≈ U ∘ V`` of zeros and ones.
"""

import matplotlib.pyplot as plt
import numpy as np

from fedfactor import BooleanVotes, PooledBMF

rng = np.random.default_rng(0)
baskets = np.kron(np.eye(5, dtype=int), np.ones(8, dtype=int))
kinds = {"north": (0, 1), "south": (1, 2), "west": (2, 3), "east": (3, 4)}
buyers = {shop: baskets[rng.choice(two, size=150)] for shop, two in kinds.items()}

# %%
# Two cells in a hundred are wrong, in either direction.
tables = {shop: np.abs(X - (rng.random(X.shape) < 0.02)).astype(int) for shop, X in buyers.items()}
everything = np.concatenate(list(tables.values()))
floor = np.mean(everything != np.concatenate(list(buyers.values())))

# %%
# Both get the same shops. A Boolean error is the share of wrong cells.
found = {}
for model in (
    PooledBMF(n_components=5, n_init=3, random_state=0),
    BooleanVotes(n_components=5, vote="majority", random_state=0),
):
    model.fit(tables)
    U = model.transform(everything)
    wrong = np.mean((U.astype(int) @ model.components_.astype(int) > 0) != everything)
    found[type(model).__name__] = model.components_
    print(f"{type(model).__name__}: {wrong:.3f} of all cells wrong, noise alone {floor:.3f}")

# %%
# One row for each basket.
figure, axes = plt.subplots(1, 3, figsize=(9, 2), layout="constrained")
for ax, (name, V) in zip(axes, {"planted": baskets, **found}.items(), strict=True):
    ax.imshow(V[np.argsort([row @ np.arange(row.size) / max(1, row.sum()) for row in V])], cmap="Greys", aspect="auto")
    ax.set(title=name, xlabel="product", yticks=[])
plt.show()
