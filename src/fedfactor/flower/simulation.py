"""A federation in Flower's simulation engine: keys, terms and folders of all parties on one machine."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.errors import DataError
from fedfactor.federation.party import Member
from fedfactor.federation.results import write_result
from fedfactor.federation.terms import Terms
from fedfactor.federation.trial import Trial

MARK = "simulation"
"""File in the folder of a simulation. A ClientApp takes its folder from the ServerApp only where this file lies."""


def prepare(folder: Path, data: Path, terms: Mapping[str, Mapping[str, Any]]) -> None:
    """Make the folder of a simulation, unless an earlier run made it.

    Parameters
    ----------
    folder : path
        For terms, keys, and one folder for each client.
    data : path
        A folder with one data file for each client, named after it.
    terms : mapping of section to entries
        What differs from the default terms.
    """
    files = {path.stem: path for path in sorted(data.iterdir()) if path.is_file() and path.name[0] != "."}
    if not files:
        raise DataError(f"{data} holds no data files. Put one file for each client there, such as north.csv.")
    toml = folder / "federation.toml"
    if not toml.exists():
        Trial(folder, files, terms)
        write_atomic(folder / MARK, b"All parties of this federation are on this machine.\n")
    elif not (folder / MARK).exists():
        raise DataError(f"{folder} is the folder of a real federation. Leave data out, or choose another folder.")
    agreed = Terms.read(toml)
    _check_same(agreed, terms, folder)
    names = agreed.names
    if set(names) != set(files):
        raise DataError(
            f"{folder} was made for {', '.join(names)}, and {data} holds {', '.join(files)}. Choose another folder."
        )
    for name in names:
        Member(toml, folder / f"{name}.key", folder / name).sign_up(files[name], confirmed=True)


def client(folder: Path, partition: int) -> tuple[Path, Path]:
    """Return the folder and the key of a client of a simulation; partitions are numbered in the order of names."""
    if not (folder / MARK).exists():
        raise DataError(
            f"{folder} is not the folder of a simulation. In a deployment, start SuperNodes with --node-config "
            '\'folder="/path/to/north" key="/path/to/north.key"\''
        )
    names = Terms.read(folder / "federation.toml").names
    if partition >= len(names):
        raise DataError(f"There are data for {len(names)} clients: --federation-config 'num-supernodes={len(names)}'")
    return folder / names[partition], folder / f"{names[partition]}.key"


def write_results(folder: Path, names: Sequence[str]) -> None:
    """Write what each client has of the run into ``results``, as ``fedfactor federation result`` does."""
    for name in names:
        out = folder / "results" / name
        shutil.rmtree(out, ignore_errors=True)
        write_result(folder / name, out)


def _check_same(agreed: Terms, wanted: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """Raise when a folder was made under other terms: its checkpoint belongs to them."""
    for section, entries in wanted.items():
        for entry, value in entries.items():
            if agreed.content.get(section, {}).get(entry, value) != value:
                found = agreed.content[section][entry]
                raise DataError(
                    f"{folder} was made with {section}.{entry} = {found!r}, and the run configuration says {value!r}. "
                    "Choose another folder."
                )
