"""Find claims, run those not yet proven for the present code, keep the evidence."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import time
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PACKAGES = ("fedfactor", "numpy", "scipy", "scikit-learn", "numba", "safetensors", "torch", "flwr", "mpi4py")


def find_claims(folder: Path) -> dict[str, Path]:
    """Name → file of every claim in a folder; files that begin with an underscore are not claims."""
    return {path.stem: path for path in sorted(folder.glob("*.py")) if not path.stem.startswith("_")}


def prove(claims: Mapping[str, Path], *, source: Path, out: Path, fresh: bool = False) -> dict[str, Any]:
    """Run claims and write the evidence after each, so that an interrupted run goes on where it stopped.

    Parameters
    ----------
    claims : mapping of str to Path
        Name → file, as `find_claims` gives it.
    source : Path
        The code the claims speak of. Evidence counts only for the very bytes it was found with: when a file under
        ``source`` or the claim itself changes, the claim is run again.
    out : Path
        The JSON file with the evidence, read first and replaced whole after each claim.
    fresh : bool
        Run again what is already proven.

    Returns
    -------
    dict
        Name → record with figures, holds, seconds, versions and date. Claims not named in this call stay as they were.
    """
    evidence: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    for name, path in claims.items():
        digest = fingerprint(path, source)
        known = evidence.get(name)
        # A claim that failed is always run again: the cause may have lain outside the code.
        if known and known["holds"] and known["code"] == digest and not fresh:
            print(f"holds    {name} (known, {known['date']})", flush=True)
            continue
        evidence[name] = record = _run(name, path) | {"code": digest}
        _write(out, evidence)
        print(f"{'holds' if record['holds'] else 'FAILS':8} {name} ({record['seconds']:.1f} s)", flush=True)
        if "error" in record:
            print(record["error"], flush=True)
    return evidence


def _run(name: str, path: Path) -> dict[str, Any]:
    """Run one claim; an exception is a claim that does not hold, with the reason kept."""
    record: dict[str, Any] = {"name": name, "claim": "", "figures": {}, "holds": False}
    begin = time.perf_counter()
    try:
        spec = importlib.util.spec_from_file_location(f"claims.{name}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        record["claim"] = " ".join((module.__doc__ or "").split("\n\n")[0].split())
        figures = dict(module.claim())
        holds = figures.pop("holds")
        if not isinstance(holds, bool):
            raise TypeError(f"'holds' must be True or False, got {holds!r}; wrap a NumPy comparison in bool(...)")
        json.dumps(figures)  # figures that cannot be written must fail here, not spoil the file
        record |= {"figures": figures, "holds": holds}
    except Exception:
        record["error"] = traceback.format_exc(limit=-3)
    record["seconds"] = round(time.perf_counter() - begin, 3)
    return record | {"versions": _versions(), "date": datetime.now(UTC).isoformat(timespec="seconds")}


def fingerprint(claim: Path, source: Path) -> str:
    """Fingerprint a claim and all Python files under the source folder, by relative name and content."""
    digest = hashlib.sha256(claim.read_bytes())
    for path in sorted(source.rglob("*.py")):
        digest.update(path.relative_to(source).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _versions() -> dict[str, str]:
    """What the figures were made with; packages that are absent are left out."""
    versions = {"python": platform.python_version(), "machine": platform.machine(), "cores": str(os.cpu_count())}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _write(out: Path, evidence: Mapping[str, Any]) -> None:
    """Replace the file in one step: a reader, or a crash, never sees half of it."""
    draft = out.with_suffix(".tmp")
    draft.write_text(json.dumps(evidence, indent=2, sort_keys=True) + "\n")
    os.replace(draft, out)
