"""``fedfactor doctor``: what this installation can do, and what it lacks."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from importlib import import_module, metadata, util
from typing import Any

import typer

from fedfactor.cli.console import console, size

EXTRAS = {
    "matplotlib": ("plots", "figures in reports"),
    "pandas": ("data", "data frames"),
    "pyarrow": ("data", "Parquet and Arrow files"),
    "openpyxl": ("excel", "Excel workbooks"),
    "anndata": ("cells", ".h5ad files"),
    "numba": ("", "compiled loops; without it the same results, slower"),
    "torch": ("deep", "FedDMF, rows as tensors, GPU"),
    "cryptography": ("privacy", "secure aggregation between parties"),
    "dp_accounting": ("privacy", "tight accounts of ε"),
    "mpi4py": ("mpi", "--engine mpi"),
    "distributed": ("dask", "--engine dask"),
    "aiohttp": ("federation", "federations: the server"),
    "httpx": ("federation", "federations: the parties"),
    "flwr": ("flower", "federations on Flower's own deployments"),
    "optuna": ("tune", "searches over settings"),
    "tensorboardX": ("tensorboard", "curves of a run for TensorBoard"),
    "mlflow": ("mlflow", "runs in MLflow"),
}
"""Packages that may be absent, the extra that brings them, and what they serve."""


def doctor() -> None:
    """Say what this installation can do: extras, BLAS and its threads, MPI, Flower, GPU, disk.

    Example: fedfactor doctor
    """
    from rich.table import Table
    from rich.text import Text

    table = Table("", "found", "what it is for", box=None, pad_edge=False)
    for name, found, what in findings():
        table.add_row(Text(name), Text(found, style="" if found[:4] != "not " else "yellow"), Text(what))
    console().print(table)
    absent = [package for package in EXTRAS if util.find_spec(package) is None]
    if absent:
        typer.echo(f"To add what is not there: pip install {' '.join(name.replace('_', '-') for name in absent)}")


def findings() -> list[tuple[str, str, str]]:
    """List what is there, as (what, found, its use).

    Examples
    --------
    >>> [name for name, _, _ in findings()][:2]
    ['fedfactor', 'python']
    """
    found = [
        ("fedfactor", version("fedfactor"), ""),
        ("python", platform.python_version(), sys.executable),
        ("numpy", version("numpy"), ""),
        ("scikit-learn", version("scikit-learn"), ""),
        *((f"blas {n}" if n else "blas", *each) for n, each in enumerate(_blas())),
        ("cores", str(_cores()), "threads that may work at once"),
    ]
    for package, (extra, what) in EXTRAS.items():
        there = util.find_spec(package) is not None
        brings = f" (extra {extra})" if extra else ""
        found.append((package, version(package.replace("_", "-")) if there else "not installed", what + brings))
    launcher = shutil.which("mpiexec") or shutil.which("mpirun")
    found.append(("mpi launcher", launcher or "not found", "starts ranks: mpiexec -n 4 fedfactor fit --engine mpi"))
    found.append(("gpu", _gpu(), "rows as tensors on a GPU"))
    try:
        free = shutil.disk_usage(os.getcwd()).free
        found.append(("disk", f"{size(free)} free", "for results and checkpoints in this folder"))
    except OSError as error:
        found.append(("disk", f"not readable ({error.strerror})", ""))
    return found


def version(package: str) -> str:
    """Name the installed version."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(version unknown)"


def _cores() -> int:
    from fedfactor.core.threads import thread_limit

    return thread_limit()


def _blas() -> list[tuple[str, str]]:
    from threadpoolctl import threadpool_info

    import_module("numpy")  # its BLAS is asked about
    pools: list[dict[str, Any]] = [each for each in threadpool_info() if each.get("user_api") == "blas"]
    return [
        (f"{pool.get('internal_api')} {pool.get('version') or ''}".strip(), f"{pool.get('num_threads')} threads")
        for pool in pools
    ] or [("not found", "products of matrices will be slow")]


def _gpu() -> str:
    if util.find_spec("torch") is None:
        return "not looked for: torch is not installed"
    try:
        torch: Any = import_module("torch")  # late and by name: only to ask it
        return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "not found"
    except Exception as error:  # a broken driver is a finding, not a failure
        return f"not usable ({type(error).__name__})"
