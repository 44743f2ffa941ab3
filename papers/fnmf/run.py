"""Run the studies, write their tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from papers.catalogue import Size
from papers.fnmf import barycenters, figures, real, synthetic
from papers.fnmf.cells import Store
from papers.tables import check_studies, write_table

__all__ = ["STUDIES", "reproduce"]

STUDIES: dict[str, Callable[[Store, bool, int], list[dict[str, Any]]]] = {
    "barycenters": barycenters.study,
    "drift": synthetic.drift,
    "trace": synthetic.trace,
    "convergence": synthetic.convergence,
    "letter": synthetic.letter,
    "clients": synthetic.clients,
    "noise": synthetic.noise,
    "personal": synthetic.personal,
    "real": real.study,
    "fashion": real.fashion,
}
"""Name → study; each gives the rows of its table."""
QUICK: dict[str, dict[str, tuple[Any, ...]]] = {
    "barycenters": {"noise": (0.0, 0.5)},
    "drift": {"local_steps": (10, 500), "method": ("central", "FedAvg", "FedProx mu=10", "FNMF-LAP", "FNMF-SK")},
    "convergence": {"participation": (1.0, 0.5), "gamma": (0.1, 1.0)},
    "clients": {"clients": (5, 20)},
    "noise": {"method": ("FedAvg", "FedProx mu=10", "FNMF-LAP", "PooledNMF")},
    "personal": {"private": (0, 2)},
    "real": {"set": ("orl_faces", "golub")},
}
"""What a quick run keeps of a study; all of those that are not named."""


def reproduce(
    out: str | Path,
    *,
    size: Size = "usual",
    seeds: int | None = None,
    only: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> Path:
    """Answer the paper's questions; go on where an earlier run was broken off.

    Parameters
    ----------
    out : path
        Folder for tables (CSV and Markdown), figures and ``cells/``, one file for each figure that was measured.
    size : {"usual", "quick", "full"}
        Small tables; some of their lines with one seed (minutes); sizes like the paper's (hours).
    seeds : int, optional
        Seeds for each setting; by default 2, 1 and 5.
    only : sequence of str
        Names of studies; all of them by default.
    say : function
        Is told every figure as it is found.

    Returns
    -------
    Path
        The folder.
    """
    check_studies(only, STUDIES)
    folder = Path(out)
    seeds, full = seeds or {"quick": 1, "usual": 2, "full": 5}[size], size == "full"
    for name, study in STUDIES.items():
        if only and name not in only:
            continue
        store = Store(folder / "cells", say, QUICK.get(name) if size == "quick" else None)
        rows = study(store, full, seeds)
        if rows:
            write_table(folder / name, rows)
            figures.draw(name, rows, folder / f"{name}.png")
    return folder
