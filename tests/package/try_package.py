"""Build the wheel and the sdist, install each extra into an environment of its own, and use what it brings.

``make package`` runs it; ``--only NAME`` tries one extra. Pip takes versions from ``constraints.txt``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ROWS = "import numpy as np; X = np.random.default_rng(0).random((30, 6))"
FIT = f"{ROWS}; import fedfactor; assert fedfactor.PooledNMF(2, rounds=3, tol=0).fit(X).components_.shape == (2, 6)"
PROGRAMS = {
    "": f"{FIT}; import sys; assert not {{'torch', 'flwr', 'mpi4py', 'pandas', 'matplotlib'}} & set(sys.modules)",
    "flower": "import fedfactor.engines.flower.apps, fedfactor.federation.server",
    "dask": "from fedfactor.engines.dask.engine import load_dask; load_dask()",
    "mpi": "from fedfactor.engines.mpi.engine import load_mpi; assert load_mpi().COMM_WORLD.size == 1",
    "deep": f"{ROWS}; import fedfactor; B = (X > .5).astype(float); "
    "fedfactor.run(fedfactor.algorithms.FedDMF(2, hidden=4, epochs=1), {'a': B[:15], 'b': B[15:]}, rounds=1, seed=0)",
    "privacy": f"{ROWS}; import fedfactor; Y = np.vstack([X] * 40); "
    "run = fedfactor.run(fedfactor.algorithms.PooledNMF(2), {'a': Y[:400], 'b': Y[400:800], 'c': Y[800:]}, rounds=2, "
    "seed=0, privacy=fedfactor.dp(epsilon=8, delta=1e-5, unit='row', row_bound=3.0, rows=1200, noise_seed=0))",
    "plots": f"{FIT}; from fedfactor.plots import plot_history; plot_history(fedfactor.PooledNMF(2).fit(X).run_)",
    "data": f"{ROWS}; import pandas, fedfactor; "
    "fedfactor.PooledNMF(2).fit(pandas.DataFrame(X, columns=list('abcdef')))",
    "cells": f"{ROWS}; import anndata, fedfactor; fedfactor.PooledNMF(2).fit(anndata.AnnData(X))",
    "tune": "import optuna",
    "report": "import matplotlib",
    "tensorboard": f"{ROWS}; import fedfactor; from fedfactor.engines.trackers import TensorBoard; "
    "fedfactor.PooledNMF(2, rounds=3, tol=0, callbacks=[TensorBoard('curves')]).fit(X)",
    "mlflow": "from fedfactor.engines.trackers import MLflow; MLflow()",
}


def run(*command: str | Path, **options: object) -> None:
    """Run a command, and end when it fails."""
    subprocess.run([str(word) for word in command], check=True, **options)  # type: ignore[call-overload]


def extras() -> list[str]:
    """List the extras that the project declares, and none at all."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return ["", *(name for name in declared if name != "all")]


def main() -> int:
    """Build, install, try; print a line each."""
    asked = argparse.ArgumentParser(prog="try_package", description=__doc__)
    asked.add_argument("--only", help="one extra")
    only = asked.parse_args().only
    names = extras() if only is None else [only]
    lacking = [name for name in names if name not in PROGRAMS]
    if lacking:
        print(f"No program tries the extra {lacking[0]!r}: add one to PROGRAMS.")
        return 2
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"MPLBACKEND": "Agg"}
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "build", "--outdir", folder, ROOT, env=environment, stdout=subprocess.DEVNULL)
        wheel, sdist = next(Path(folder).glob("*.whl")), next(Path(folder).glob("*.tar.gz"))
        print(
            f"built {wheel.name} ({wheel.stat().st_size // 1024} kB), {sdist.name} ({sdist.stat().st_size // 1024} kB)"
        )
        for name in names:
            home = Path(folder) / f"with-{name or 'nothing'}"
            venv.create(home, with_pip=True)
            python = home / "bin" / "python"
            # The sdist is tried once, without extras: it must build the same package as the checkout.
            for source in (wheel, sdist) if not name else (wheel,):
                what = f"{source}[{name}]" if name else str(source)
                pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall")
                run(python, *pip, "--constraint", ROOT / "constraints.txt", what, env=environment, cwd=folder)
                run(python, "-W", "ignore", "-c", PROGRAMS[name], env=environment, cwd=folder)
                run(home / "bin" / "fedfactor", "--version", env=environment, cwd=folder, stdout=subprocess.DEVNULL)
                print(f"{source.suffix.lstrip('.')} with {name or 'no extra'}: works", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
