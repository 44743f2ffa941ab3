"""
Topics in documents of three newsrooms
======================================

Three newsrooms count words; none shows a text. Counts want the loss for counts: the Kullback-Leibler divergence.

The picture shows the words of each topic, and how much each newsroom writes about it.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse

from fedfactor import PooledNMF
from fedfactor.plots import plot_top_features, plot_usage

topics = {
    "sport": "match goal team coach season player cup league".split(),
    "money": "bank market share rate tax budget profit loan".split(),
    "weather": "rain storm wind snow flood heat cloud ice".split(),
    "health": "hospital doctor virus vaccine patient nurse drug ward".split(),
}
words = [word for each in topics.values() for word in each] + ["today", "people", "year", "city"]
rng = np.random.default_rng(0)
V = np.full((4, len(words)), 0.02)
for t in range(4):
    V[t, 8 * t : 8 * t + 8] = rng.uniform(0.5, 1.5, 8)
V[:, -4:] = 0.6  # words that every text has
V /= V.sum(axis=1, keepdims=True)
habits = {"Courier": [5, 2, 1, 1], "Ledger": [1, 6, 1, 1], "Herald": [1, 1, 3, 4]}
notes = {
    name: scipy.sparse.csr_array(rng.poisson(60 * rng.dirichlet(np.array(habit) / 4, 150) @ V).astype(float))
    for name, habit in habits.items()
}

# %%
model = PooledNMF(n_components=4, loss="kullback-leibler", rounds=150, tol=1e-5, random_state=0).fit(notes)

# %%
figure, axes = plt.subplots(2, 3, figsize=(10, 6), layout="constrained")
axes = axes.ravel()
axes[5].axis("off")
for component in range(4):
    plot_top_features(model, words, component=component, n=6, ax=axes[component])
plot_usage(model, ax=axes[4])
plt.show()
