"""A client leaves PooledPCA or PooledSVD in one exchange with it alone, and comes back in another. On five sets dealt
to ten clients the components, variances and means are those of a fresh fit to the rows that are in: bit-identical where
cells are whole numbers (four sets), else within 1e-12 of the largest. Needs ``FEDFACTOR_DATA``.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from claims._pca import DENSE, SPARSE, splits
from fedfactor import PooledPCA, PooledSVD
from fedfactor.privacy import PrivacyWarning

RANK, WHOLE, OTHER = 10, ("CBCL faces", "digits", "mushrooms", "roles (APJ)"), "PBMC cells"
FITTED = ("components_", "explained_variance_", "singular_values_")


def apart(one: Any, two: Any) -> float:
    """Return the largest difference of what was fitted, relative to the largest number of its kind."""
    pairs = [(np.asarray(getattr(one, name)), np.asarray(getattr(two, name))) for name in FITTED]
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


def claim() -> dict:
    warnings.simplefilter("ignore", PrivacyWarning)
    figures: dict[str, Any] = {}
    for name in (*WHOLE, OTHER):
        owners = splits({**DENSE, **SPARSE}[name]())["random"]
        gone = {"03": owners["03"]}
        rest = {who: rows for who, rows in owners.items() if who not in gone}
        for kind in (PooledPCA, PooledSVD):
            model = kind(RANK, solver="gram", random_state=0)
            fresh, whole = (kind(RANK, solver="gram", random_state=0).fit(each) for each in (rest, owners))
            left = model.fit(owners).remove(gone)
            found = {"left": apart(left, fresh), "exchanges": left.n_iter_, "bytes_up": left.run_.bytes_up}
            found["came back"] = apart(left.partial_fit(gone), whole)
            figures[f"{name}, {kind.__name__}"] = found
            print(name, kind.__name__, found, flush=True)
    holds = all(
        max(found["left"], found["came back"]) <= (1e-12 if OTHER in name else 0.0) and found["exchanges"] == 1
        for name, found in figures.items()
    )
    return {"sets": figures, "holds": bool(holds)}
