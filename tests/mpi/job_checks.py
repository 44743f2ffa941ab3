"""Run on every rank: bad uploads and channels, against the reference; rank 0 prints what went wrong, as JSON."""

from __future__ import annotations

import json
import sys
import traceback

from mpi4py import MPI

from fedfactor.engines.mpi.engine import MPIEngine
from fedfactor.testing.checks_for_engines import check_engine_channel, check_engine_rejects

WAYS = {
    "allreduce": {},
    "ordered": {"reduction": "ordered"},
    "drop-outs": {"drop_outs": True},
    "untrusted": {"trusted": False},
}


def attempt(check, settings):
    try:
        check(lambda: MPIEngine(**settings), 1e-9)
    except AssertionError:
        return traceback.format_exc(limit=1)
    return ""


found = {
    f"{check.__name__} {way}": "".join(MPI.COMM_WORLD.allgather(attempt(check, settings)))
    for check in (check_engine_rejects, check_engine_channel)
    for way, settings in WAYS.items()
}
if MPI.COMM_WORLD.rank == 0:
    json.dump(found, sys.stdout)
