"""PooledNMF, FNMF, FELB, FedSPLIT and AsynSD over HTTPS, with TLS and registered keys, give the local engine's bits.

So does PooledNMF with a secure sum, compared with the local engine's. A real server and three parties on this
machine; for AsynSD, whose uploads come in no fixed order, this machine takes the same steps in the order in which they
arrived.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from claims import _flower as real
from fedfactor.federation.trial import Trial


def claim() -> dict:
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        with Trial(root / "all", *real.case("PooledNMF", root)) as trial:
            for name in real.CASES:
                (root / name).mkdir()
                figures[name] = real.compare(trial, name, root / name)
                print(name, figures[name], flush=True)
    return {**figures, "holds": all(found.get("largest_difference") == 0.0 for found in figures.values())}
