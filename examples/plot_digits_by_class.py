"""
Federated equals pooled: digits, one class per client
=====================================================

Ten clients hold images of handwritten digits, and each client has the images of one digit only. No two clients hold
similar rows, which is the most difficult split for federated averaging.

The upper figure shows the first ten components of three runs. The federated run gives the components of the pooled run;
federated averaging (FedAvg) does not. The lower figure shows the error over all rows after each round.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF

from fedfactor import FedAvgNMF, PooledNMF

X, client = load_digits(return_X_y=True)
n_components, rounds = 20, 60

# %%
# ``groups`` names the client of each row. Without it, all rows belong to one client: that is the pooled run.
pooled = PooledNMF(n_components, rounds=rounds, random_state=0).fit(X)
federated = PooledNMF(n_components, rounds=rounds, random_state=0).fit(X, groups=client)
averaged = FedAvgNMF(n_components, rounds=rounds, random_state=0).fit(X, groups=client)

difference = np.abs(federated.components_ - pooled.components_).max() / pooled.components_.max()
print(f"Largest difference between federated and pooled components: {difference:.1e} of the largest value")

# %%
# The components as images.
shown = {"pooled rows": pooled, "PooledNMF, 10 clients": federated, "FedAvgNMF, 10 clients": averaged}
figure, axes = plt.subplots(3, 10, figsize=(9, 3.2), layout="constrained")
for line, (label, model) in zip(axes, shown.items(), strict=True):
    for ax, component in zip(line, model.components_, strict=False):
        ax.imshow(component.reshape(8, 8), cmap="gray_r")
        ax.set(xticks=[], yticks=[])
    line[0].set_ylabel(label.replace(", ", "\n"), rotation=0, ha="right", va="center")
plt.show()

# %%
# The server computes the error of each round from the sums. The total can hide a client with a large error, so the
# largest error of a client is printed too. scikit-learn on pooled rows is shown for comparison.
reference = NMF(n_components, init="nndsvda", max_iter=500, tol=0).fit(X)
central = reference.reconstruction_err_ / np.linalg.norm(X)
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for label, model in list(shown.items())[1:]:
    run = model.run_
    errors = {record.index: record.metrics["relative_error"] for record in run.history if record.metrics}
    ax.plot(list(errors), list(errors.values()), label=label)
    worst, error = run.worst_client
    print(f"{label}: {run.relative_error:.4f} over all rows, {error:.4f} at the worst client ({worst})")
ax.axhline(central, color="0.5", linestyle="--", label="scikit-learn, pooled rows")
ax.set(xlabel="round", ylabel="relative error", ylim=(0.9 * central, None))
ax.legend()
plt.show()
