"""
Accuracy under differential privacy
===================================

Noise protects each row: the smaller ε, the less any party can learn about one row, and the more noise there is. Six
thousand rows of five owners, planted components.

The picture shows the error of the common components for several ε, beside that without noise.
"""

import matplotlib.pyplot as plt
import numpy as np

import fedfactor
from fedfactor import PooledNMF
from fedfactor.data import planted_nmf, split_rows

data = planted_nmf(6000, 20, 4, noise=0.1, n_clients=5, per_client=4, seed=0)
owners = split_rows(data.X / np.linalg.norm(data.X, axis=1).max(), data.labels)
rows = np.vstack(list(owners.values()))
plain = -PooledNMF(n_components=4, random_state=0).fit(owners).score(rows)

# %%
# ``unit="row"``: the guarantee is about one row. The number of rounds is chosen by the run: fewer for a small ε, since
# each further round makes all of them noisier. Errors are measured with all rows at hand, which no real federation has.
epsilons, errors = [0.1, 0.2, 0.5, 1, 2, 4], []
for epsilon in epsilons:
    privacy = fedfactor.dp(epsilon, delta=1e-6, unit="row", row_bound=1.0, rows=6000)
    model = PooledNMF(n_components=4, privacy=privacy, random_state=0).fit(owners)
    errors.append(-model.score(rows))

# %%
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(epsilons, errors, marker="o", label="with noise")
ax.axhline(plain, color="0.5", linestyle="--", label="without")
ax.set(xscale="log", xlabel="ε of one row (δ = 1e-6)", ylabel="relative error", xticks=epsilons, xticklabels=epsilons)
ax.legend()
plt.show()
