"""The noise figures of the FELB and FNMF papers with their true composed ε, and utility at proven ε."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedfactor.algorithms import FALB, FELB, FNMF, BooleanVotes, FedProxNMF, OneShotNMF, PooledBMF, PooledNMF
from fedfactor.core.entropy import Entropy
from fedfactor.core.errors import FedfactorError
from fedfactor.core.flattened_upload import Parcel
from fedfactor.core.transforms import Site
from fedfactor.datasets.loading import load_dataset
from fedfactor.datasets.synthetic import planted_boolean, planted_nmf
from fedfactor.engines.run import run
from fedfactor.io.partition import split_evenly, split_rows
from fedfactor.privacy.dp import dp
from fedfactor.privacy.paper_mechanisms import PaperNoise
from papers.catalogue import Size
from papers.kept import kept
from papers.tables import check_studies, write_table

__all__ = ["STUDIES", "reproduce"]

Row = dict[str, Any]
Cells = Iterator[tuple[Row, Callable[[], Row]]]
ROUNDS = 40
THETA = 10.0
"""Largest norm of V before the noise, where the paper clips; a planted V has about 14."""
REAL = (("mushroom", True, 8), ("chess", True, 8), ("fashion_mnist", False, 10), ("mushroom", False, 8))
BUDGETS = (0.5, 1.0, 2.0, 4.0, 8.0, math.inf)


@dataclass(frozen=True, slots=True)
class SeededNoise(PaperNoise):
    """The papers' noise from a seed, so that the figures can be made again; noise that protects data is secret."""

    seed: int = 0

    def encode(self, parcel: Parcel, site: Site) -> Parcel:
        """Add the noise of this seed, client and round."""
        uniforms = Entropy.seeded(self.seed, site.name, site.at.index, "paper").uniforms(parcel.values.size)
        return replace(parcel, values=self.spoil(parcel.values, uniforms))


def tiles(full: bool) -> dict[str, np.ndarray]:
    """Ten clients of binary rows made of planted tiles, 5 % of the cells flipped."""
    n, m, k = (10_000, 500, 10) if full else (1000, 200, 5)
    X = planted_boolean(n, m, k, flips=0.05, seed=0).X
    return split_rows(X, split_evenly(n, 10, seed=0))


def felb(full: bool) -> Cells:
    """Figs. 5 and 13 of the FELB paper: Gaussian and Laplace noise, V clipped at θ before it and not, for guesses of Δ.

    The paper says θ > 1 and no more. Cells of V never exceed 1, so θ can only be meant for the norm of V.
    """
    data = tiles(full)
    k, m = (10, 500) if full else (5, 200)
    ones = int(max(X.sum(axis=1).max() for X in data.values()))
    for (guess, delta_f), (mechanism, clip), nominal, name in product(
        (("1 (none of the papers')", 1.0), ("most ones in a row", float(ones)), ("columns", float(m))),
        (("gaussian", False), ("gaussian", True), ("laplace", False), ("laplace", True)),
        (0.5, 1.0, 2.0, 10.0, 100.0),
        ("FELB", "FALB") if full else ("FELB",),
    ):
        noise = SeededNoise(cast("Any", mechanism), nominal, 0.05, delta_f, theta=THETA if clip else None)
        method = (FELB if name == "FELB" else FALB)(k, tol=0)
        key = {"study": "felb", "method": name, "mechanism": mechanism + ("†" if clip else ""), "Δ": guess,
               "nominal ε": nominal, "full": full}  # fmt: skip
        yield key, lambda noise=noise, method=method: _measured(method, data, noise, k * m, ROUNDS)


def xor(full: bool) -> Cells:
    """Fig. 14: flipped bits on the one-shot rivals under every vote.

    Δ is the number of columns, or the bits that really can change; "columns, Ji" is the bound of the XOR mechanism of
    Ji et al. for independent bits, ``Δ |θ| √m ≤ ε``: the flips of Δ √m.
    """
    data = tiles(full)
    k, m = (10, 500) if full else (5, 200)
    for solver, vote, (guess, bits), nominal in product(
        ("asso", "grecond", "mebf", "elbmf", "zhang"),
        ("majority", "average", "or"),
        (("columns", m), ("columns, Ji", m * math.sqrt(m)), ("1 bit", 1)),
        (0.5, 2.0, 10.0, 100.0, math.inf),
    ):
        noise = None if math.isinf(nominal) else SeededNoise("xor", nominal, sensitivity=float(bits))
        method = BooleanVotes.paper(k, solver, vote=vote, refit="boolean")
        name = f"{solver} {vote}"
        key = {"study": "xor", "method": name, "mechanism": "xor", "Δ": guess, "nominal ε": nominal, "full": full}
        yield key, lambda noise=noise, method=method: _measured(method, data, noise, k * m, 1)


def fnmf(full: bool) -> Cells:
    """Fig. 4 of the FNMF paper: noise on factors that nothing bounds, so that no ε holds at all.

    All have the paper's iPALM clients, equal weights and starts of their own; iPALM and MUR average once.
    """
    n, m, k = (5000, 200, 10) if full else (1000, 60, 5)
    X = planted_nmf(n, m, k, seed=0).X
    data = split_rows(X, split_evenly(n, 10, seed=0))
    plain: Row = {"n_components": k, "local_solver": "gradient", "start": "own", "weights": "equal", "tol": 0.0}
    methods = {
        "FNMF": FNMF(k, tol=0),
        "FedAvg": FedProxNMF(mu=0.0, **plain),
        "FedProx": FedProxNMF(mu=1.0, **plain),
        "iPALM": OneShotNMF(k, combine="mean", local_solver="gradient"),
        "MUR": OneShotNMF(k, combine="mean", local_solver="multiplicative"),
    }
    for (name, method), mechanism, nominal in product(
        methods.items(), ("gaussian", "laplace"), (0.1, 1.0, 10.0, 100.0, 1000.0)
    ):
        noise = SeededNoise(cast("Any", mechanism), nominal, 0.05, 1.0, (0.0, math.inf))
        key = {"study": "fnmf", "method": name, "mechanism": mechanism, "Δ": "1", "nominal ε": nominal, "full": full}
        rounds = 1 if isinstance(method, OneShotNMF) else 20
        yield key, lambda noise=noise, method=method, rounds=rounds: _measured(method, data, noise, 0, rounds)


def curves(full: bool) -> Cells:
    """Proven row-level ε on real data, beside the papers' noise with a Δ that is right, at its true composed ε."""
    for name, binary, k in REAL:
        try:
            X = load_dataset(name).X
        except (FedfactorError, OSError):
            continue
        X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
        X = X / max(float(X.max()), 1.0)
        data = split_rows(X, split_evenly(len(X), 10, seed=0))
        method = PooledBMF(k, solver="proximal") if binary else PooledNMF(k)
        for budget, seed in product(BUDGETS, range(3 if full or binary else 1)):
            key = {"study": "curves", "data": name, "method": type(method).__name__, "mechanism": "ours, unit row",
                   "ε": budget, "seed": seed, "full": full}  # fmt: skip
            yield key, lambda m=method, d=data, e=budget, s=seed: _proven(m, d, e, s)
        for nominal in (1.0, 8.0, 100.0):
            key = {"study": "curves", "data": name, "nominal ε": nominal, "seed": 0, "full": full}
            yield _papers(key, data, binary, k, X.shape[1])


def _papers(key: Row, data: Any, binary: bool, k: int, m: int) -> tuple[Row, Callable[[], Row]]:
    """Put the papers' noise beside: with a Δ that is right where V is bounded, and with Δ = 1 where no Δ can be."""
    size, nominal = k * m if binary else 0, key["nominal ε"]
    guess, rounds = math.sqrt(size) if binary else 1.0, ROUNDS if binary else 20
    noise = SeededNoise("gaussian", nominal, 1e-5, guess, (0.0, 1.0 if binary else math.inf))
    method = FELB(k, tol=0) if binary else FNMF(k, tol=0)
    words = "paper's, Δ = diameter" if binary else "paper's, Δ = 1, V unbounded"
    named = {**key, "method": type(method).__name__, "mechanism": words}
    return named, lambda: _measured(method, data, noise, size, rounds)


QUICK = {
    "method": ("asso majority", "grecond majority", "mebf majority", "elbmf majority", "zhang majority", "FELB", "FNMF",
               "FedAvg", "iPALM", "PooledBMF"),
    "nominal ε": (1.0, 2.0, 10.0, 1000.0, math.inf), "ε": (1.0, 8.0, math.inf), "seed": (0,),
    "data": ("mushroom", "chess"),
}  # fmt: skip
"""What a quick run keeps."""
STUDIES = {"felb": felb, "xor": xor, "fnmf": fnmf, "curves": curves}


def _measured(method: Any, data: Any, noise: PaperNoise | None, size: int, rounds: int) -> Row:
    """Run with noise as printed; the true ε is that of a whole client whose entries lie in [0, 1]."""
    result = run(method, data, rounds=rounds, seed=0, privacy=None if noise is None else noise)
    true = math.inf if noise is None or not size else noise.true_epsilon(size, result.rounds)
    return {"true ε": true, "loss": _loss(result), "rounds": result.rounds}


def _proven(method: Any, data: Any, budget: float, seed: int) -> Row:
    delta = 10.0 ** -math.ceil(math.log10(10 * sum(len(X) for X in data.values())))
    privacy = None if math.isinf(budget) else dp(budget, delta, noise_seed=seed)
    result = run(method, data, seed=seed, privacy=privacy)
    about = result.privacy or {"epsilon": math.inf}
    return {"true ε": about["epsilon"], "δ": None if privacy is None else delta, "loss": _loss(result),
            "rounds": result.rounds}  # fmt: skip


def _loss(result: Any) -> float:
    """Return wrong cells over ones for Boolean factors, relative error for others."""
    error = result.measured.relative_error
    return error**2 if result.algorithm.domain == "binary" else error


def reproduce(
    out: Path, *, size: Size = "usual", only: tuple[str, ...] = (), say: Callable[[str], None] = print
) -> Path:
    """Run the studies and write tables and figures.

    Parameters
    ----------
    out : Path
        Folder; figures already there are not made again.
    size : {"usual", "quick", "full"}
        Small tables; two or three values of ε and few methods of them (minutes); larger tables and more seeds.
    only : tuple of str
        Studies to run: felb, xor, fnmf, curves; all when empty.
    say : callable
        Told of each figure as it comes.

    Returns
    -------
    Path
        The folder.
    """
    check_studies(only, STUDIES)
    out = Path(out)
    cells = out / "cells"
    cells.mkdir(parents=True, exist_ok=True)
    for study, plan in STUDIES.items():
        if only and study not in only:
            continue
        rows = []
        for key, make in plan(size == "full"):
            if size == "quick" and any(key[name] not in few for name, few in QUICK.items() if name in key):
                continue
            rows.append(kept(cells, key, lambda key=key, make=make: {**key, **make()}, prefix=f"{key['study']}-"))
            say(", ".join(f"{name} {value}" for name, value in rows[-1].items() if name != "full"))
        if not rows:
            say(f"{study}: none of its data are here. Set FEDFACTOR_DATA to the folder that holds them.")
            continue
        write_table(out / study, rows, list(dict.fromkeys(name for row in rows for name in row)))
        from papers.privacy.figures import draw

        draw(out, study, rows)
    return out
