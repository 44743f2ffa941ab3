"""
Digits, one class per owner
===========================

Ten owners hold handwritten digits, one class each: nobody's rows look like anybody else's. Averaging factors that
were found apart suffers from this; adding up the sums that a common step needs does not.

The picture shows the error over all rows after each round, beside a scikit-learn run that was given all rows at once.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF

from fedfactor import FedAvgNMF, PooledNMF

X, owner = load_digits(return_X_y=True)
n_components, rounds = 20, 60

# %%
# All rows in one place, for comparison only.
pooled = NMF(n_components, init="nndsvda", max_iter=500, tol=0).fit(X)
central = pooled.reconstruction_err_ / np.linalg.norm(X)

# %%
# The same rows at ten owners. ``groups`` says who owns which row.
models = [
    PooledNMF(n_components=n_components, rounds=rounds, random_state=0).fit(X, groups=owner),
    FedAvgNMF(n_components=n_components, rounds=rounds, random_state=0).fit(X, groups=owner),
]

# %%
# The server knows the error of each round without a second trip. The total can hide an owner who fares badly, so the
# worst one is named too.
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for model in models:
    run, name = model.run_, type(model).__name__
    errors = {record.index: record.metrics["relative_error"] for record in run.history if record.metrics}
    ax.plot(list(errors), list(errors.values()), label=name)
    worst, error = run.worst_client
    print(f"{name}: {run.relative_error:.4f} over all rows, {error:.4f} at the worst owner ({worst})")
ax.axhline(central, color="0.5", linestyle="--", label="scikit-learn, all rows in one place")
ax.set(xlabel="round", ylabel="relative error", title="Digits, one class per owner", ylim=(0.9 * central, None))
ax.legend()
plt.show()
