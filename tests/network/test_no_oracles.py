"""Whatever a server sends, in every method: whether and in what shapes a party answers does not depend on its rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedfactor import algorithms
from fedfactor.core.pytree import tree_map
from fedfactor.core.wire import from_bytes, to_bytes
from fedfactor.network.client import REFUSAL
from fedfactor.network.exchange import Arrival, NotEnough
from fedfactor.network.message_format import read_head, seal
from fedfactor.network.verified_messages import Masked, octets
from fedfactor.testing.data import small_data
from tests.network.in_process import Office

pytest.importorskip("cryptography")
METHODS = ("PooledNMF", "PooledBMF", "PooledCF", "PooledEASE", "PooledRidge", "PooledCNMF", "FCF", "Biases",
           "Popularity", "FedAvgNMF", "FELB", "SynSD", "SynSSD", "DistributedNMF",
           "PooledPCA", "PooledSVD")  # fmt: skip
SECURE = {"rounds": 3, "protect": "secure-sum", "report_score": False}


def rows_of(domain):
    """Rows of one shape that have little else in common."""
    X = small_data(domain)["north"]
    rare = np.zeros_like(X)
    rare[3, 2] = 1.0
    if domain == "binary":
        return {"none": 0 * X, "all": 1 + 0 * X, "others": 1 - X, "one": rare}
    return {"none": 0 * X, "huge": 1e120 * X, "tiny": 1e-120 * X, "turned": X[:, ::-1].copy(), "one": rare}


def answers(folder, algorithm, owners):
    """Ask what an honest coordinator asks up to round 0, and then a false question; return what it sees of a party."""
    made, seen = Office(folder, algorithm, owners, **SECURE), []

    def tamper(name, answer):
        head = read_head(answer)
        tree = from_bytes(answer) if head.kind != "refusal" else None
        sizes = (tree.sizes.tolist(), tree.words.size) if isinstance(tree, Masked) else None
        if name == "north" and head.index < 2:
            seen.append((head.kind, head.index, sizes, head.reason))
        return [Arrival(name, answer)]

    def forge(name, data):
        head = read_head(data)
        if head.kind not in ("step", "end") or head.index < 1:
            return data
        question = from_bytes(data)
        down = tree_map(lambda leaf: leaf * 0 + leaf.dtype.type(3), from_bytes(question.down.tobytes()))
        return seal(head, replace(question, down=octets(to_bytes(down))))

    made.post.tamper, made.post.forge = tamper, forge
    with np.errstate(all="ignore"), pytest.raises(NotEnough, match=REFUSAL):
        made.server(dropouts="wait").run()
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_no_method_tells_about_rows_by_refusing(tmp_path, name):
    """PooledCF ended in "singular matrix" for users with few ratings when regularisation was sent as zero."""
    algorithm = getattr(algorithms, name)(3)
    owners = small_data(algorithm.domain)
    first = answers(tmp_path / "first", algorithm, owners)
    assert [kind for kind, *_ in first] == ["meet", "survey", "sum", "survey", "step", "sum", "refusal"]
    for kind, rows in rows_of(algorithm.domain).items():
        assert answers(tmp_path / kind, algorithm, {**owners, "north": rows}) == first, kind
