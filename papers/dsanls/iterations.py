"""Error and bytes against iterations, in one process: both solvers with both sketches of the paper; and what it costs.

The iterates depend on the seed alone, so neither needs several machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.algorithms import DSANLS, SynSD
from fedfactor.core.algorithm import Round
from fedfactor.core.client_data import Federation
from fedfactor.core.grid import grid_federation
from fedfactor.engines.run import run
from fedfactor.linalg.factors import reconstruction
from fedfactor.nmf.distributed.syn_sd import Own
from papers.dsanls.datasets import planted

__all__ = ["MARKS", "complexity", "iterations", "protocol", "write_figure"]

MARKS = (5, 10, 20, 40, 80, 160)
"""Iterations at which errors are measured."""


def iterations(full: bool, seeds: int = 3) -> Iterator[dict[str, Any]]:
    """Yield the error on the planted matrix by sketch, solver, iterations and seed."""
    M = planted()
    for kind in ("gaussian", "subsampling"):
        for solver in ("proximal", "gradient"):
            for seed in range(seeds):
                errors, sent = _errors(M, kind, solver, seed)
                for mark, error in zip(MARKS, errors, strict=True):
                    row = {"sketch": kind, "solver": solver, "seed": seed, "iterations": mark, "error": error}
                    yield {**row, "bytes": round(sent * mark)}


def _errors(M: np.ndarray, kind: Any, solver: Any, seed: int) -> tuple[list[float], float]:
    """Return the relative errors at the marks, and the bytes that a node sends in an iteration."""
    method = DSANLS(8, kind, 0.1, solver, leak="ignore")
    federation, errors = grid_federation(M, 2), []
    norm = float(np.linalg.norm(M))
    for mark in MARKS:  # a run that collects V ends there, so each mark is a run of its own
        found = run(replace(method, iterations=mark), federation, rounds=2 * mark + 1, seed=seed)
        U = np.vstack([found.factors[name].U for name in federation.names])
        errors.append(float(np.sqrt(max(reconstruction(M, U, found.V)[0], 0.0))) / norm)
    return errors, found.bytes_up / len(federation.names) / MARKS[-1]


def complexity(full: bool) -> Iterator[dict[str, Any]]:
    """Yield multiplications and numbers sent by a node in one iteration, counted from the shapes of its products.

    ``M`` is n × m, dense, on N nodes; sketches of columns have d columns, those of rows d'. DSANLS with subsampling:
    ``M S`` picks columns, the Gram matrix is k²d, the cross product (n/N)dk, one pass of coordinate descent (n/N)k²;
    the same for V. MPI-FAUN by rows and columns has m in the place of d, and sends both factors.
    """
    k, ratio = 20, 0.1
    for n, m in ((20_000, 784), (20_000, 20_000), (200_000, 200_000)):
        d, d_rows = int(ratio * m), int(ratio * n)
        for nodes in (2, 10, 16):
            a_row, a_column = n / nodes, m / nodes
            sketched = k * k * (d + d_rows) + k * (a_row * d + a_column * d_rows) + k * k * (a_row + a_column)
            gaussian = sketched + a_row * m * d + a_column * n * d_rows + k * (a_row * d_rows + a_column * d)
            plain = k * k * (a_row + a_column) + k * (a_row * m + a_column * n) + k * k * (a_row + a_column)
            for method, products, sent in (
                ("DSANLS subsampling", sketched, k * (d + d_rows)),
                ("DSANLS gaussian", gaussian, k * (d + d_rows)),
                ("MPI-FAUN HALS", plain, k * (n + m)),
            ):
                row = {"rows": n, "columns": m, "rank": k, "nodes": nodes, "method": method}
                ratios = {"products_ratio": products / plain, "sent_ratio": sent / (k * (n + m))}
                yield {**row, "multiplications": round(products), "numbers_sent": sent, **ratios}


def protocol(full: bool) -> Iterator[dict[str, Any]]:
    """Yield how well one of two parties of Syn-SD recovers the other's factor from the means that it receives.

    The paper's definition of a private protocol lets a party learn its outputs and nothing else; the local factor that
    the other party had at an exchange is no output. The attack uses what the first party sent and received, no more.
    """
    M = planted()
    owners = {"a": np.ascontiguousarray(M[:, :150].T), "b": np.ascontiguousarray(M[:, 150:].T)}
    method, federation = SynSD.published(8), Federation(owners)
    meta = federation.prepare(method.domain)
    server, down = method.init_server(meta, Round(0, 0))
    states = {name: method.init_client(federation.shard(name), meta, Round(0, 0, name)) for name in meta.clients}
    largest = 0.0
    for index in range(5):
        ups = {}
        for name in meta.clients:
            at = Round(0, index, name)
            states[name], ups[name] = method.client_step(federation.shard(name), states[name], down, at)
        both = Own(ups["a"].V + ups["b"].V, ups["a"].n + ups["b"].n)
        server, down = method.server_step(server, both, Round(0, index, participants=meta.clients))
        recovered = 2 * down.V - ups["a"].V
        largest = max(largest, float(np.abs(recovered - ups["b"].V).max() / np.abs(ups["b"].V).max()))
    yield {"parties": 2, "exchanges": 5, "largest_error": largest}


def write_figure(out: Path, rows: list[dict[str, Any]]) -> None:
    """Draw error against iterations and against bytes, means over seeds."""
    from fedfactor.plots import panels

    axes = panels(2)
    for kind in ("gaussian", "subsampling"):
        for solver, style in (("proximal", "-"), ("gradient", "--")):
            mine = [row for row in rows if row["sketch"] == kind and row["solver"] == solver]
            means = [np.mean([row["error"] for row in mine if row["iterations"] == mark]) for mark in MARKS]
            sent = [np.mean([row["bytes"] for row in mine if row["iterations"] == mark]) for mark in MARKS]
            label = f"{'PCD' if solver == 'proximal' else 'PGD'}, {kind}"
            for ax, x in zip(axes, (MARKS, sent), strict=True):
                ax.plot(x, means, style, marker=".", label=label)
    for ax, name in zip(axes, ("iterations", "bytes a node sent"), strict=True):
        ax.set(xlabel=name, ylabel="relative error", xscale="log", yscale="log")
    axes[0].legend(fontsize="x-small")
    axes[0].figure.savefig(out / "iterations.png", dpi=120, bbox_inches="tight")
