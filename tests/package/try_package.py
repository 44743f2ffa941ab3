"""Build the wheel and the sdist, install each extra into an environment of its own, and use what it brings.

``make package`` runs it; ``--only NAME ...`` tries some extras, and the name none the package without any. Pip takes
versions from ``constraints.txt``. The files of a release are left in ``dist/``: wheel, sdist, a lock file with hashes
(``requirements.lock``) and a list of all components (``sbom.cdx.json``, CycloneDX).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NONE = "none"
PARTY = ("federation", "privacy", "data", "report")
"""The extras that an organisation in a federation installs: the lock file holds them."""
ROWS = "import numpy as np; X = np.random.default_rng(0).random((30, 6))"
FIT = f"{ROWS}; import fedfactor; assert fedfactor.PooledNMF(2, rounds=3, tol=0).fit(X).components_.shape == (2, 6)"
PROGRAMS = {
    NONE: f"{FIT}; import sys; assert not {{'torch', 'flwr', 'mpi4py', 'pandas', 'matplotlib'}} & set(sys.modules)",
    "federation": "import fedfactor.network.https.server, fedfactor.network.https.client, fedfactor.federation.serving",
    "dask": f"{ROWS}; import distributed, fedfactor; c = distributed.Client(processes=False, dashboard_address=None); "
    "fedfactor.run(fedfactor.algorithms.PooledNMF(2), {'a': X[:15], 'b': X[15:]}, rounds=1, seed=0, engine='dask'); "
    "c.close()",
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
    "tune": "import numpy as np; from scipy import sparse; from fedfactor.selection import tune_cnmf; "
    "R = sparse.random_array((20, 30), density=0.4, format='csr', rng=np.random.default_rng(0)); "
    "R.data[:] = np.rint(1 + 4 * R.data); tune_cnmf(R, trials=2, folds=2, iterations=5, most_components=3)",
    "report": "from pathlib import Path; assert '<svg' in Path('out/report.html').read_text()",
    "tensorboard": f"{ROWS}; import fedfactor; from fedfactor.engines.experiment_trackers import TensorBoard; "
    "fedfactor.PooledNMF(2, rounds=3, tol=0, callbacks=[TensorBoard('curves')]).fit(X)",
    "mlflow": f"{ROWS}; import mlflow, fedfactor; from fedfactor.engines.experiment_trackers import MLflow; "
    "fedfactor.PooledNMF(2, rounds=3, tol=0, callbacks=[MLflow('first try')]).fit(X); "
    "(kept,) = mlflow.search_runs(output_format='list'); assert kept.data.metrics['result/rounds'] == 3",
}
TABLE = "lead,zinc,iron\n" + "".join(f"{i % 3 + 1}.5,{i % 2}.25,{i % 5}.5\n" for i in range(9))
TYPED = """
import fedfactor
from fedfactor.algorithms import PooledNMF

model = fedfactor.PooledNMF(n_components=2, rounds=3)
run: fedfactor.Run = fedfactor.run(PooledNMF(2), {}, seed=0)
version: str = fedfactor.__version__
"""
"""What a user's type checker must understand from the stubs of the installed package."""
WRONG = ("fedfactor.PooledNMF(n_component=2)", "fedfactor.PooledNMF(2, rounds='many')", "fedfactor.Nmf()")
"""What it must object to."""


def run(*command: str | Path, **options: object) -> None:
    """Run a command, and end when it fails."""
    subprocess.run([str(word) for word in command], check=True, **options)  # type: ignore[call-overload]


def extras() -> list[str]:
    """List the extras that the project declares, and none at all first."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return [NONE, *(name for name in declared if name != "all")]


def look_inside(wheel: Path, sdist: Path) -> None:
    """Refuse a wheel that lacks types or holds more than the package, and an sdist that lacks what its tests read."""
    names = set(zipfile.ZipFile(wheel).namelist())
    strange = [name for name in names if not name.startswith(("fedfactor/", "fedfactor-"))]
    assert not strange, f"the wheel holds {strange}"
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = set(listed.splitlines())
    made = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    lacking = sorted({*made, "fedfactor/py.typed"} - names)
    assert not lacking, f"the wheel lacks {lacking}"
    assert any(name.endswith("licenses/LICENSE") for name in names), "the wheel lacks its licence"
    lacking = sorted(tracked - {name.partition("/")[2] for name in tarfile.open(sdist).getnames()})
    assert not lacking, f"the sdist lacks {lacking}"


def type_check(python: Path, folder: Path, environment: dict[str, str]) -> None:
    """See the package through a type checker that knows the installed files only."""
    file = folder / "uses_it.py"
    check = [sys.executable, "-m", "pyright", "--pythonpath", str(python), "--project", str(folder), str(file)]
    file.write_text(TYPED)
    run(*check, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
    for line in WRONG:
        file.write_text(f"{TYPED}\n{line}\n")
        found = subprocess.run(check, env=environment, cwd=folder, capture_output=True, text=True)
        assert found.returncode == 1, f"nothing is said about {line}"
        assert "1 error" in found.stdout, found.stdout
    print("types from outside: understood, mistakes found", flush=True)


def use_commands(home: Path, folder: Path, environment: dict[str, str]) -> None:
    """Fit two files with the installed command, look at the result, and use it for new rows."""
    fedfactor = home / "bin" / "fedfactor"
    for name in ("north", "south"):
        (folder / f"{name}.csv").write_text(TABLE)
    for words in (
        ["--version"],
        ["fit", "north.csv", "south.csv", "-k", "2", "--rounds", "2", "-q", "-o", "out", "--overwrite"],
        ["info", "out"],
        ["transform", "out", "north.csv", "-o", "u.csv"],
    ):
        run(fedfactor, *words, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
    run(home / "bin" / "python", "-m", "fedfactor", "--version", env=environment, cwd=folder, stdout=subprocess.DEVNULL)


def uninstall(home: Path, folder: Path, environment: dict[str, str]) -> None:
    """Take the package away: nothing stays but loops that were compiled on this machine, which pip does not know."""
    python = home / "bin" / "python"
    run(python, "-m", "pip", "uninstall", "--yes", "--quiet", "fedfactor", env=environment, cwd=folder)
    left = [path for path in home.rglob("*fedfactor*") if path.is_file()]
    left += [path for path in home.glob("lib/*/site-packages/fedfactor/**/*") if path.is_file()]
    left = [path for path in left if path.suffix not in {".nbi", ".nbc"}]
    assert not left, f"uninstalling leaves {left[:5]}"
    print("uninstalled: nothing is left but what was compiled here", flush=True)


def lock(wheel: Path, folder: Path, environment: dict[str, str]) -> Path:
    """Write the exact version and the hash of everything that an organisation installs, the wheel included."""
    pylock = folder / "pylock.toml"
    source = f"fedfactor[{','.join(PARTY)}] @ {wheel.as_uri()}"
    pip = (sys.executable, "-m", "pip", "lock", "--quiet", "--constraint", ROOT / "constraints.txt")
    run(*pip, "--output", pylock, source, env=environment, cwd=folder, stderr=subprocess.DEVNULL)
    lines = [f"./{wheel.name} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"]
    for package in tomllib.loads(pylock.read_text())["packages"]:
        if package["name"] != "fedfactor":
            hashes = [f"--hash=sha256:{file['hashes']['sha256']}" for file in package["wheels"]]
            lines.append(f"{package['name']}=={package['version']} {' '.join(hashes)}")
    path = folder / "requirements.lock"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def list_components(locked: Path, folder: Path, environment: dict[str, str]) -> Path:
    """Install from the lock file alone, and list what is then there."""
    home = folder / "locked"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps")
    run(*pip, "--requirement", locked, env=environment, cwd=folder)
    run(python, "-m", "pip", "check", env=environment, cwd=folder, stdout=subprocess.DEVNULL)
    path = folder / "sbom.cdx.json"
    cyclonedx = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible")
    run(*cyclonedx, "--pyproject", ROOT / "pyproject.toml", "--mc-type", "library", "-o", path, python, env=environment)
    return path


def release(wheel: Path, sdist: Path, folder: Path, environment: dict[str, str]) -> None:
    """Leave the files of a release in ``dist/``."""
    locked = lock(wheel, folder, environment)
    components = list_components(locked, folder, environment)
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    (ROOT / "dist").mkdir()
    for path in (wheel, sdist, locked, components):
        shutil.copy(path, ROOT / "dist")
    print(f"dist/: wheel, sdist, {len(locked.read_text().splitlines())} packages locked by hash, SBOM", flush=True)


def main() -> int:
    """Build, install, try; print a line each."""
    asked = argparse.ArgumentParser(prog="try_package", description=__doc__)
    asked.add_argument("--only", nargs="+", default=extras(), metavar="NAME", help=f"these extras, or {NONE}")
    names = asked.parse_args().only
    lacking = [name for name in names if name not in PROGRAMS]
    if lacking:
        print(f"No program tries the extra {lacking[0]!r}: add one to PROGRAMS.")
        return 2
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"MPLBACKEND": "Agg"}
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top)
        run(sys.executable, "-m", "build", "--outdir", folder, ROOT, env=environment, stdout=subprocess.DEVNULL)
        wheel, sdist = next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))
        look_inside(wheel, sdist)
        print(
            f"built {wheel.name} ({wheel.stat().st_size // 1024} kB), {sdist.name} ({sdist.stat().st_size // 1024} kB)"
        )
        release(wheel, sdist, folder, environment)
        for name in names:
            home = folder / f"with-{name}"
            venv.create(home, with_pip=True)
            python = home / "bin" / "python"
            # The sdist is tried once, without extras: it must build the same package as the checkout.
            for source in (wheel, sdist) if name == NONE else (wheel,):
                what = str(source) if name == NONE else f"{source}[{name}]"
                pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall")
                run(python, *pip, "--constraint", ROOT / "constraints.txt", what, env=environment, cwd=folder)
                if name in (NONE, "report"):
                    use_commands(home, folder, environment)
                if name == "federation":  # the first command of docs/tutorials/federation_of_three_hospitals.md
                    run(home / "bin" / "fedfactor", "federation", "try", "trial", env=environment, cwd=folder)
                run(python, "-W", "ignore", "-c", PROGRAMS[name], env=environment, cwd=folder)
                print(f"{source.suffix.lstrip('.')} with {'no extra' if name == NONE else name}: works", flush=True)
            if name == NONE:
                type_check(python, folder, environment)
                uninstall(home, folder, environment)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
