"""On the privacy path nothing may draw from an ordinary generator, or run code found in bytes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedfactor

ROOT = Path(fedfactor.__file__).parent
OTHERS = (
    "linalg/row_clipping.py",
    "core/wire.py",
    "core/pytree.py",
    "core/atomic_files.py",
    "federation/keys.py",
    "network/client.py",
    "network/exchange.py",
    "network/message_format.py",
    "network/secure_aggregation.py",
    "network/server.py",
)
PATHS = sorted([*(ROOT / "privacy").rglob("*.py"), *(ROOT / name for name in OTHERS)])
BANNED_MODULES = {"random", "pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}


def offences(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            whole = ast.unparse(node)
            if whole.startswith(("np.random", "numpy.random", "scipy.stats")):
                found.append(whole)
            if node.attr in ("load", "loads", "rng") and whole.split(".")[0] in ("np", "numpy", "pickle", "at"):
                found.append(whole)
            continue
        else:
            continue
        found += [
            n for n in names if n.split(".")[0] in BANNED_MODULES or n.startswith(("numpy.random", "scipy.stats"))
        ]
    return found


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_ordinary_randomness_and_no_pickle(path):
    assert offences(ast.parse(path.read_text())) == []


@pytest.mark.parametrize("line", ["import random", "np.random.normal()", "from pickle import loads", "at.rng('x')"])
def test_the_check_can_fail(line):
    assert offences(ast.parse(line))
