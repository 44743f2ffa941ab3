"""
Recommendations from ratings of several shops
=============================================

Three libraries let their readers rate books. No party shows its ratings to any party; each wants predictions as good as
if all ratings lay in one place.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from fedfactor import FedSPLIT, PooledCF

rng = np.random.default_rng(0)
tastes, books = rng.gamma(1, size=(240, 3)), rng.gamma(1, size=(3, 120))
truth = 1 + 4 * (tastes @ books) / (tastes @ books).max(axis=1, keepdims=True)
reader, book = np.nonzero(rng.random(truth.shape) < 0.2)
ratings = pd.DataFrame({
    "user": [f"reader {i}" for i in reader],
    "item": [f"book {j}" for j in book],
    "rating": np.clip(np.round(2 * (truth[reader, book] + 0.2 * rng.standard_normal(reader.size))) / 2, 1, 5),
    "library": np.array(["north", "south", "west"])[reader % 3],
})  # fmt: skip
test = rng.random(len(ratings)) < 0.2
train, held = ratings[~test], ratings[test]


# %%
# ``alone`` is what a library can do by itself.
def rmse(model, rows):
    """Return the root of the mean squared error of the predictions."""
    return float(np.sqrt(np.mean((model.predict(rows["user"], rows["item"]) - rows["rating"]) ** 2)))


errors = {}
alone = []
for name, rows in train.groupby("library"):
    model = PooledCF(n_components=3, random_state=0).fit(rows.assign(library=name), groups="library")
    alone.append(rmse(model, held[(held["library"] == name) & held["item"].isin(rows["item"])]))
errors["each alone"] = float(np.mean(alone))
for method in (FedSPLIT, PooledCF):
    model = method(n_components=3, random_state=0).fit(train, groups="library")
    errors[method.__name__] = rmse(model, held)
print({name: round(error, 3) for name, error in errors.items()})

# %%
# The last model was fitted by sums. It names books that a reader has not rated.
print(model.recommend(["reader 0"], n=3))
figure, ax = plt.subplots(figsize=(5, 3), layout="constrained")
ax.bar(list(errors), list(errors.values()), color="0.6")
ax.set(ylabel="RMSE on held-out ratings")
plt.show()
