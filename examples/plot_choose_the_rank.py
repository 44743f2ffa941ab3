"""
Choosing the number of components
=================================

Every owner hides a tenth of its cells; all factor the rest; the errors on hidden cells, added up, decide. No party
shows a row. Handwritten digits of three owners.

The picture shows the held-out error, which turns, and that of the cells that were used, which always falls.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from fedfactor import select_rank
from fedfactor.data import split_rows
from fedfactor.plots import plot_rank

X, y = load_digits(return_X_y=True)
owners = split_rows(X[:450], y[:450] % 3)

# %%
found = select_rank(owners, [2, 4, 6, 9, 12, 16, 20], repeats=2, rounds=30, seed=0)
print(found.at_edge or f"Recommended: {found.recommended}, least error: {found.best}")

# %%
ax = plot_rank(found)
ax.set_title("Digits of three owners")
plt.show()
