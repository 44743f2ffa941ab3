"""
Laboratory values of three hospitals
====================================

Three hospitals measure the same ten laboratory values. Liver, kidney and inflammation patterns hide in all of them, but
each hospital has few patients of some kind. Values come in different units, so every column is divided by the root mean
square over all hospitals, which takes sums alone.

The picture shows the components with the values that weigh most, by name.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from fedfactor import PooledNMF
from fedfactor.plots import plot_top_features

units = {
    "ALT": 40.0, "AST": 35.0, "bilirubin": 12.0, "albumin": 40.0, "creatinine": 80.0, "urea": 6.0, "potassium": 4.3,
    "CRP": 20.0, "leucocytes": 8.0, "ferritin": 200.0,
}  # fmt: skip
liver = [3.0, 2.5, 2.0, 0.2, 0.0, 0.0, 0.0, 0.2, 0.0, 0.5]
kidney = [0.0, 0.0, 0.0, 0.2, 3.0, 2.5, 1.2, 0.0, 0.0, 0.0]
inflamed = [0.1, 0.1, 0.0, 0.0, 0.0, 0.1, 0.0, 3.0, 1.5, 2.0]
healthy = [0.5, 0.5, 0.5, 1.0, 0.6, 0.6, 1.0, 0.1, 0.7, 0.4]
patterns = np.array([liver, kidney, inflamed, healthy])

rng = np.random.default_rng(0)
mixtures = {"north": [0.1, 0.6, 0.2], "south": [0.5, 0.1, 0.2], "west": [0.2, 0.2, 0.6]}
hospitals = {}
for name, chance in mixtures.items():
    U = rng.gamma(2.0, 0.5, (120, 3)) * (rng.random((120, 3)) < chance)
    X = np.hstack([U, rng.uniform(0.8, 1.2, (120, 1))]) @ patterns * rng.lognormal(0, 0.1, (120, 10))
    hospitals[name] = pd.DataFrame(X * list(units.values()), columns=list(units))

# %%
# In files, ``fedfactor fit north.csv south.csv west.csv -k 4 --scale rms`` does the same.
squares = sum((frame**2).sum() for frame in hospitals.values())
rms = np.sqrt(squares / sum(map(len, hospitals.values())))
model = PooledNMF(n_components=4, random_state=0).fit({name: frame / rms for name, frame in hospitals.items()})
print(f"relative error {model.relative_error_:.3f}")

# %%
figure, axes = plt.subplots(2, 2, figsize=(7, 6), layout="constrained")
for component, ax in enumerate(axes.flat):
    plot_top_features(model, list(units), component=component, n=5, ax=ax)
plt.show()
