"""Every algorithm of the library gives the local engine's factors on 2 and 3 MPI ranks, and on 2 and 3 Dask workers.

With sums in name order the bits are the same; with sums as MPI or a tree of workers form them factors are at most 1e-6
apart, and who took part in which round is the same. That the sums are of one kind for all is what makes it hold, so
the algorithms whose server needs single uploads are counted apart.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedfactor import algorithms
from tests.mpi.launcher import mpiexec

JOB = Path(__file__).resolve().parent.parent / "tests" / "mpi" / "job_all.py"


def _on_workers(workers: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Run all on a cluster of worker processes on this machine."""
    import distributed

    from fedfactor.engines.dask.engine import DaskEngine
    from tests.engines.every_algorithm import apart_from_local

    found: dict[str, dict[str, dict[str, Any]]] = {}
    with (
        distributed.LocalCluster(workers, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        for reduction in ("ordered", "tree"):
            runs = {name: apart_from_local(name, DaskEngine(client, reduction)) for name in sorted(algorithms.__all__)}
            found[reduction] = {name: {"apart": a, "same_history": same} for name, (a, same) in runs.items()}
    return found


def claim():
    from tests.engines.every_algorithm import sums

    summed = [name for name in sorted(algorithms.__all__) if sums(name)]
    figures: dict[str, Any] = {"algorithms": len(algorithms.__all__), "of these with sums alone": len(summed)}
    holds = True
    for workers in (2, 3):
        ranks = json.loads(mpiexec(workers, JOB, timeout=900).stdout)
        for where, found in ((f"{workers} ranks", ranks), (f"{workers} Dask workers", _on_workers(workers))):
            for reduction, each in found.items():
                exact, apart = reduction == "ordered", {name: line["apart"] for name, line in each.items()}
                figures[f"{where}, {reduction}: furthest apart, sums alone"] = max(apart[name] for name in summed)
                figures[f"{where}, {reduction}: furthest apart, all"] = max(apart.values())
                holds &= set(each) == set(algorithms.__all__) and all(line["same_history"] for line in each.values())
                holds &= max(apart.values()) <= (0.0 if exact else 1e-6)
    return {**figures, "holds": bool(holds)}
