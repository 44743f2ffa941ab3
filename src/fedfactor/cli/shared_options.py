"""Options that commands share, each written once: of ``fit`` and its kin, and of the commands of a federation."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedfactor.algorithm_names import algorithm_names
from fedfactor.cli.reading_options import ENDINGS


class Storage(StrEnum):
    """How a GPU keeps rows."""

    float64 = "float64"
    float32 = "float32"
    bfloat16 = "bfloat16"


class Network(StrEnum):
    """How messages travel."""

    local = "local"
    mpi = "mpi"
    dask = "dask"


class Split(StrEnum):
    """What clients hold."""

    rows = "rows"
    columns = "columns"


class Reduction(StrEnum):
    """How ranks, or the workers of Dask, add."""

    allreduce = "allreduce"
    ordered = "ordered"


class Backend(StrEnum):
    """Where clients run."""

    threads = "threads"
    processes = "processes"


Files = Annotated[
    list[Path],
    typer.Argument(help=f"One file per owner ({ENDINGS}), or folders of them.", show_default=False),
]
Algorithm = Annotated[
    str,
    typer.Option(
        "--algorithm",
        "-a",
        help=f"One of {', '.join(algorithm_names())}; or package.module:Class.",
        autocompletion=algorithm_names,
    ),
]
Rank = Annotated[
    int | None,
    typer.Option("--rank", "-k", help="Number of components; fedfactor rank helps to choose it.", show_default=False),
]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.", show_default=False)]
Rounds = Annotated[int | None, typer.Option(help="Rounds at most; by default the algorithm's own.", show_default=False)]
Seed = Annotated[int | None, typer.Option(help="Drawn and written to run.json when not given.", show_default=False)]
Tol = Annotated[float | None, typer.Option(help="When to stop; 0 uses all rounds.", show_default=False)]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Another setting, name=value; fedfactor settings ALGORITHM lists them."),
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="Start at the components of this result of pooled-nmf: with rows or owners that came since, few rounds "
        "do.",
        show_default=False,
    ),
]
Starts = Annotated[
    int | None,
    typer.Option(
        "--n-init",
        min=1,
        help="Starts, of which the one with the least error is kept; by default 1, for pooled-nmf with n_private 6.",
        show_default=False,
    ),
]
Share = Annotated[float, typer.Option(help="Share of the owners that take part in each round.")]
Where = Annotated[Backend, typer.Option(help="Run the owners in threads or in processes of their own.")]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Owners at work at a time; by default one per core. With --engine dask: workers to wait for.",
        show_default=False,
    ),
]
Engine = Annotated[
    Network,
    typer.Option(
        help="Run all owners in this process, on the ranks of mpiexec -n N fedfactor fit …, or on a Dask cluster."
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="With --engine dask: address of the scheduler, such as tcp://10.0.0.1:8786; without, a cluster of this "
        "machine's cores.",
        show_default=False,
    ),
]
Ranks = Annotated[
    int | None,
    typer.Option(help="Ranks that the MPI job must have; without mpiexec, start that many.", show_default=False, min=1),
]
Adding = Annotated[
    Reduction, typer.Option(help="With --engine mpi or dask: add fast, or in name order with the bits of a local run.")
]
Parts = Annotated[
    str | None,
    typer.Option(
        help="Cut one file into so many blocks of rows, each an owner, read where it is worked on; with --engine mpi "
        "as many as there are ranks. For grid-nmf 2x3, or 6: the grid of so many blocks that sends least.",
        metavar="N",
        show_default=False,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help="Where to work: cpu, cuda, or cuda:1. By default on the processor.", show_default=False),
]
Stored = Annotated[
    Storage | None,
    typer.Option("--storage", help="With --device cuda: how the GPU keeps dense rows. By default float32."),
]
Every = Annotated[int, typer.Option("--checkpoint-every", help="Rounds between two checkpoints.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what the folder holds, start from round 0.")]
NoGain = Annotated[
    bool,
    typer.Option("--no-gain", help="Do not measure what owners gain over going alone (done where data are small)."),
]
NoReport = Annotated[bool, typer.Option("--no-report", help="Do not write report.html beside the results.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but mistakes.")]

Folder = Annotated[Path, typer.Argument(help="A folder written by fedfactor fit.", show_default=False)]

Toml = Annotated[Path, typer.Argument(help="The file that all parties agreed on.", show_default=False)]
Server = Annotated[
    Path | None, typer.Option("--folder", help="The server's folder; by default 'server' beside the file.")
]
Page = Annotated[int | None, typer.Option(help="Show a page about it at this port of this machine; 0: any free one.")]
PageAddress = Annotated[
    str, typer.Option(help="Where the page listens; elsewhere than on this machine itself over TLS and with a token.")
]
JsonLogs = Annotated[bool, typer.Option("--json-logs", help="Write logs as one JSON object a line.")]
