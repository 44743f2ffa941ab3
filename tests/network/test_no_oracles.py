"""Whatever a server sends, in every method: whether and in what shapes a party answers does not depend on its rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedfactor import algorithms
from fedfactor.core.pytree import to_numpy, tree_map
from fedfactor.core.wire import from_bytes
from fedfactor.network.client import RemoteClient
from fedfactor.network.message_format import read_head, seal
from fedfactor.testing.data import small_data
from tests.network.in_process import AnyFolder, Office

pytest.importorskip("cryptography")
METHODS = ("PooledNMF", "PooledBMF", "PooledCF", "PooledEASE", "PooledRidge", "PooledCNMF", "FCF", "Biases",
           "Popularity", "FedAvgNMF", "FELB", "SynSD", "SynSSD", "DistributedNMF",
           "PooledPCA", "PooledSVD")  # fmt: skip
SECURE = {"rounds": 3, "protect": "secure-sum", "report_score": False}
SCALES = (0.0, -1.0, 1e-150, 1e-30, 1e30, 1e150)


def rows_of(domain):
    """Rows of one shape that have little else in common."""
    X = small_data(domain)["north"]
    rare = np.zeros_like(X)
    rare[3, 2] = 1.0
    if domain == "binary":
        return {"none": 0 * X, "all": 1 + 0 * X, "others": 1 - X, "one": rare}
    return {"none": 0 * X, "huge": 1e120 * X, "tiny": 1e-120 * X, "turned": X[:, ::-1].copy(), "one": rare}


def bend(down, rng):
    """Change a download as somebody would who wants to ask something else with it."""

    def bent(leaf):
        cells, way = to_numpy(leaf), int(rng.integers(9))
        if cells.dtype.kind == "f" and way < 6:
            return (SCALES[way] * cells).astype(cells.dtype)
        if cells.dtype.kind == "f" and way == 6:
            return np.where(rng.random(cells.shape) < 0.3, cells, 0).astype(cells.dtype)
        if cells.dtype.kind in "iu" and way < 3:
            return (0 * cells, cells + 1, cells[: max(1, len(cells) // 2)] if cells.ndim == 1 else cells)[way]
        return leaf

    return tree_map(bent, down)


def answers(folder, algorithm, owners, messages):
    """Ask the same questions of a party, four times: as they were, and bent; return what the server sees of it."""
    Office(folder, algorithm, owners, **SECURE)
    rng, seen, why = np.random.default_rng(3), [], []
    with np.errstate(all="ignore"):
        for attempt in range(4):
            party = RemoteClient(AnyFolder(folder / "north"))
            for message in messages:
                head, down = read_head(message), from_bytes(message)
                down = bend(down, rng) if attempt and head.kind == "step" else down
                data = party.answer(seal(replace(head, run=f"r{attempt}"), down))
                told = read_head(data)
                ready = from_bytes(data) if told.kind == "step" else None
                seen.append(
                    (told.kind, len(data), None if ready is None else (int(ready.kind), *ready.shapes.tolist()))
                )
                why.append(party.store.sent()[-1].get("reason", ""))
    return seen, why


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_no_method_tells_about_rows_by_refusing(tmp_path, name):
    """PooledCF ended in "singular matrix" for users with few ratings when regularisation was sent as zero."""
    algorithm = getattr(algorithms, name)(3)
    owners = small_data(algorithm.domain)
    made = Office(tmp_path / "honest", algorithm, owners, **SECURE)
    made.server(dropouts="wait").run()
    messages = [data for to, data in made.post.messages if to == "north" and read_head(data).kind != "sum"]
    first, _ = answers(tmp_path / "first", algorithm, owners, messages)
    assert {kind for kind, *_ in first} >= {"step", "end"}
    for kind, rows in rows_of(algorithm.domain).items():
        seen, why = answers(tmp_path / kind, algorithm, {**owners, "north": rows}, messages)
        odd = [(number, why[number]) for number in range(len(seen)) if seen[number] != first[number]]
        assert not odd, (kind, odd[:3])
