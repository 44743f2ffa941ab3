"""Two and four real MPI ranks give the local engine's factors: the same bits in name order, 1e-6 with Allreduce.

DSANLS, PooledNMF, FELB, FNMF, FedAvgNMF, DistributedNMF, Syn-SSD and the engines' probe; ``clusters_equal_local`` has
all others. The bytes of a DSANLS iteration are those of two sketches: as handed to MPI, and as
carried by the loopback interface when MPI may use nothing but TCP.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.mpi.launcher import mpiexec

JOBS = Path(__file__).resolve().parent.parent / "tests" / "mpi"
TCP = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp"}
"""Settings of MPICH that send messages between ranks of one machine through its network interface."""


def claim():
    figures, holds = {}, True
    for ranks in (2, 4):
        done = mpiexec(ranks, JOBS / "job_equality.py", timeout=300)
        found = json.loads(done.stdout)
        exact = {what: each["apart"] for what, each in found.items() if not what.endswith("allreduce")}
        rounded = {what: each["apart"] for what, each in found.items() if what.endswith("allreduce")}
        double = {what: apart for what, apart in rounded.items() if not what.startswith("float32")}
        figures[f"{ranks} ranks, name order, furthest apart"] = max(exact.values())
        figures[f"{ranks} ranks, Allreduce, furthest apart"] = max(double.values())
        figures[f"{ranks} ranks, Allreduce, single precision"] = rounded["float32 allreduce"]
        holds &= max(exact.values()) == 0 and max(double.values()) < 1e-6
        holds &= all(each["same_history"] and each["every_owner_once"] for each in found.values())
    counted = json.loads(mpiexec(2, JOBS / "job_run.py", "bytes", "-").stdout)
    k, n, m, T = 3, 400, 300, 40
    figures["bytes a rank handed to MPI in 40 iterations"] = counted["sent"]
    figures["k (d + d') numbers for each of them, in bytes"] = T * counted["per_iteration"]
    figures["k (n + m) numbers would be"] = T * 8 * k * (n + m)
    holds &= counted["sent"] < 1.1 * T * counted["per_iteration"]
    # Other traffic of the machine can only add, so the least of three is nearest.
    tries = [json.loads(mpiexec(2, JOBS / "job_run.py", "wire", "-", variables=TCP).stdout) for _ in range(3)]
    carried = min(tries, key=lambda each: each["a_rank_an_iteration"])
    figures["2000 × 1500, k = 10: bytes on the interface, a rank and iteration"] = carried["a_rank_an_iteration"]
    figures["2000 × 1500, k = 10: k (d + d') numbers, in bytes"] = carried["sketches"]
    figures["2000 × 1500, k = 10: k (n + m) numbers, in bytes"] = carried["factors"]
    holds &= carried["sketches"] <= carried["a_rank_an_iteration"] < 1.1 * carried["sketches"]
    return {**figures, "holds": bool(holds)}
