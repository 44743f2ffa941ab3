"""
Transforming the rows of a new client
=====================================

V is all that a newcomer needs: its rows are placed among the components at home, and nothing is sent. Here breast
tumours of two clinics; a third places its own, and sees which of them look malignant.

The picture shows the new rows by the two components that distinguish the kinds best.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from fedfactor import PooledNMF

tumours = load_breast_cancer()
X, y = tumours.data / tumours.data.mean(axis=0), tumours.target
clinics = {"north": X[:200], "south": X[200:400]}
newcomer, kind = X[400:], y[400:]

# %%
model = PooledNMF(n_components=4, random_state=0).fit(clinics)
U = model.transform(newcomer)
apart = np.abs(U[kind == 0].mean(axis=0) - U[kind == 1].mean(axis=0)) / U.std(axis=0)
first, second = np.argsort(-apart)[:2]

# %%
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for value, name in enumerate(tumours.target_names):
    ax.scatter(U[kind == value, first], U[kind == value, second], s=14, label=name)
for place, axis in ((first, ax.set_xlabel), (second, ax.set_ylabel)):
    weigh = np.argsort(-model.components_[place])[:2]
    axis(f"component {place + 1}: {', '.join(tumours.feature_names[weigh])}")
ax.set_title("Tumours of a clinic that took no part")
ax.legend()
plt.show()
