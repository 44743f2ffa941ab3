"""Run the parts of the library in one source tree, and record what they give as a flat table of digests.

Started as a script in a fresh process, with the tree's ``src`` and root on the path, so that the same program records
every tree. It uses public names; a place that has moved is listed with its earlier place.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import itertools
import json
import os
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROUNDS = 5
PARAMETERS: dict[str, dict[str, Any]] = {
    "DSANLS": {"leak": "ignore", "iterations": 3},
    "FedDMF": {"hidden": 8, "epochs": 1, "refine": 1, "batch_size": 64},
    "FedSPLIT": {"iterations": 5},
    "BooleanVotes": {"solver": "grecond"},
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "PooledNMF kullback-leibler": ("PooledNMF", {"loss": "kullback-leibler"}),
    "PooledNMF n_private": ("PooledNMF", {"n_private": 1}),
    "PooledNMF beta": ("PooledNMF", {"loss": 0.5}),
    "PooledNMF penalties": ("PooledNMF", {"alpha_U": 0.1, "l1_ratio": 0.5}),
    "PooledNMF random": ("PooledNMF", {"start": "random"}),
    "PooledNMF stacked": ("PooledNMF", {"start": "stacked", "weights": "equal"}),
    "PooledBMF proximal": ("PooledBMF", {"solver": "proximal"}),
    "FNMF common": ("FNMF", {"start": "common"}),
    "DistributedNMF bpp": ("DistributedNMF", {"solver": "bpp"}),
    "PooledCF implicit": ("PooledCF", {"feedback": "implicit"}),
}
PRIVACY = ("secure-sum", "median", "trimmed-mean", "group-median", "dp row", "dp client")
SEVEN = {"a": 29, "b": 31, "c": 37, "d": 41, "e": 43, "f": 47, "g": 53}
PLACES = {
    "Arrival": ["fedfactor.network.exchange", "fedfactor.engines.remote.exchange"],
    "agree_on_noise": ["fedfactor.privacy.agreed_noise"],
    "Checkpoint": ["fedfactor.engines.checkpoint"],
    "DaskEngine": ["fedfactor.engines.dask.engine"],
    "Ledger": ["fedfactor.privacy"],
    "MPIEngine": ["fedfactor.engines.mpi.engine"],
    "Office": ["tests.network.in_process", "tests.engines.in_process"],
    "Terms": ["fedfactor.federation.terms"],
    "VirtualEngine": ["fedfactor.engines.local.virtual_clock"],
    "federation_for": ["fedfactor.testing.data"],
    "small_data": ["fedfactor.testing.data"],
    "variants": ["fedfactor.testing.data"],
}

Table = dict[str, Any]


def find(name: str) -> Any:
    """Import a name from the first of its places that this tree has."""
    for place in PLACES[name]:
        with contextlib.suppress(ModuleNotFoundError):
            return getattr(importlib.import_module(place), name)
    raise ModuleNotFoundError(f"{name} is at none of {', '.join(PLACES[name])}. Add its place to PLACES.")


# -------------------------------------------------------------------------------------------------------------- digests
def plain(value: Any) -> Any:
    """Turn anything that a run gives into text and lists; arrays become dtype, shape and a digest of their bytes."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in sorted(value.items(), key=lambda pair: str(pair[0]))}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return {"": type(value).__name__, **{name: plain(part) for name, part in parts.items() if part is not None}}
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if hasattr(value, "tocsr"):
        value = value.tocsr()
        return ["sparse", *map(plain, (value.data, value.indices, value.indptr))]
    array = np.ascontiguousarray(value)
    return f"{array.dtype}{list(np.shape(value))} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"


def schema(value: Any) -> Any:
    """Name the leaves of a message with their dtype and shape, without the digests."""
    if isinstance(value, dict):
        return {name: schema(part) for name, part in value.items()}
    return [schema(part) for part in value] if isinstance(value, list) else str(value).rpartition(" ")[0] or value


def flat(prefix: str, table: Table) -> Iterator[tuple[str, Any]]:
    """Give every entry of nested tables a key of its own, so that a new field is an addition, not a difference."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(f"{prefix} {key}", value)
        else:
            yield f"{prefix} {key}", value


def digest(value: Any) -> str:
    """Shorten a plain value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def of_run(run: Any) -> Table:
    """Record what a run returns, one entry for each thing that may change alone."""
    history = [plain(each) for each in run.history]
    traffic = [{name: each.pop(name) for name in ("bytes_up", "bytes_down")} for each in history]
    for each in history:
        del each["seconds"]
    owners = run.owners_only
    scores = run.scores if owners is None else owners.scores
    return {
        "status": run.status,
        "V": plain(run.V),
        "factors": plain(dict(run.factors)),
        "history": digest(history),
        "scores": plain(dict(scores)),
        "traffic": digest(traffic),
        "privacy": digest(plain({k: v for k, v in (run.privacy or {}).items() if "seconds" not in k})),
    }


@contextlib.contextmanager
def messages(kind: type, found: list[Any]) -> Iterator[None]:
    """List every download and upload of an algorithm's steps, at clients and at the server."""
    client, server = kind.client_step, kind.server_step  # type: ignore[attr-defined]

    def client_step(self: Any, shard: Any, state: Any, down: Any, at: Any) -> Any:
        state, up = client(self, shard, state, down, at)
        found.append([at.index, f"client {at.client}", plain(down), plain(up)])
        return state, up

    def server_step(self: Any, state: Any, up: Any, at: Any) -> Any:
        state, down = server(self, state, up, at)
        found.append([at.index, "server", plain(up), plain(getattr(down, "items", down))])
        return state, down

    kind.client_step, kind.server_step = client_step, server_step  # type: ignore[attr-defined]
    try:
        yield
    finally:
        kind.client_step, kind.server_step = client, server  # type: ignore[attr-defined]


def run_once(name: str, owners: Any, engine: Any, privacy: Any = None, listen: bool = True, **more: Any) -> Table:
    """Run one case; a refusal is recorded by its class."""
    import fedfactor

    found: list[Any] = []
    try:
        algorithm = make(name)
        federation = find("federation_for")(algorithm, owners, **more.pop("reading", {}))
        options = {"engine": engine, "rounds": ROUNDS, "seed": 2, "privacy": privacy, **more}
        with messages(type(algorithm), found) if listen else contextlib.nullcontext():
            table = of_run(fedfactor.run(algorithm, federation, **options))
    except Exception as error:
        return {"refused": type(error).__name__}
    if listen:
        found.sort(key=lambda each: (each[0], each[1], digest(each)))
        table |= {"messages": digest(found), "leaves": digest(schema(found))}
    return table


def make(name: str) -> Any:
    """Make an algorithm of rank 3 with small parameters."""
    from fedfactor import algorithms

    kind, parameters = VARIANTS.get(name, (name, PARAMETERS.get(name, {})))
    return getattr(algorithms, kind)(3, **parameters)


def names() -> list[str]:
    """Name all algorithms of the tree."""
    from fedfactor import algorithms

    return sorted(algorithms.__all__)


def data_for(name: str, rows: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Make small data that an algorithm takes."""
    more = {} if rows is None else {"n_rows": rows}
    return find("small_data")(make(name).domain, **more)


# ---------------------------------------------------------------------------------------------------------------- parts
def local(folder: Path) -> Iterator[tuple[str, Table]]:
    """Run every algorithm in threads, with every kind of data."""
    import fedfactor

    engine = fedfactor.LocalEngine(workers=2)
    for name in [*names(), *VARIANTS]:
        for kind, owners in find("variants")(make(name), data_for(name)).items():
            reading = {"missing_values": np.nan} if "masked" in kind else {}
            yield f"{name}, {kind}", run_once(name, owners, engine, reading=reading)
        yield f"{name}, participation", run_once(name, data_for(name), engine, participation=0.5)


def private(folder: Path) -> Iterator[tuple[str, Table]]:
    """Run every algorithm in threads, with everything that protects uploads."""
    import fedfactor

    count = sum(SEVEN.values())
    asked = {
        "dp row": {"epsilon": 5.0, "delta": 1e-4, "row_bound": 3.0, "rows": count, "noise_seed": 7},
        "dp client": {"epsilon": 50.0, "delta": 1e-2, "unit": "client", "clip": 1.0, "noise_seed": 7},
    }
    for name, mode in itertools.product(names(), PRIVACY):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            privacy = fedfactor.dp(**asked[mode]) if mode in asked else mode
            yield f"{name}, {mode}", run_once(name, data_for(name, SEVEN), fedfactor.LocalEngine(workers=2), privacy)


def processes(folder: Path) -> Iterator[tuple[str, Table]]:
    """Run every algorithm in processes of their own."""
    import fedfactor

    engine = fedfactor.LocalEngine(backend="processes", workers=2)
    for name in names():
        yield name, run_once(name, data_for(name), engine, listen=False)


def virtual(folder: Path) -> Iterator[tuple[str, Table]]:
    """Run every algorithm under the virtual clock: asynchronous where it can, and with a barrier."""
    for name, barrier in itertools.product(names(), (False, True)):
        engine = find("VirtualEngine")(barrier=barrier, evaluate=2)
        yield f"{name}, {'barrier' if barrier else 'stream'}", run_once(name, data_for(name), engine)


def parties(folder: Path) -> Iterator[tuple[str, Table]]:
    """Run every algorithm between remote parties in this process, with messages as bytes and folders on disk."""
    for name, mode in itertools.product(names(), ("none", "secure-sum", "dp")):
        owners = data_for(name)
        try:
            yield f"{name}, {mode}", _with_parties(folder / f"{name} {mode}", make(name), owners, mode)
        except Exception as error:
            yield f"{name}, {mode}", {"refused": type(error).__name__}


def _with_parties(folder: Path, algorithm: Any, owners: Any, mode: str) -> Table:
    federation, found, more = find("federation_for")(algorithm, owners), [], {}
    if mode != "none":
        more = {"protect": mode, "report_score": False}
    if mode == "dp":
        rows = sum(len(X) for X in owners.values())
        noise = {"epsilon": 5.0, "delta": 1e-4, "unit": "row", "row_bound": 3.0, "rows": float(rows), "colluding": 1}
        meta = importlib.import_module("dataclasses").replace(federation.prepare(algorithm.domain), n_rows=None)
        algorithm, more["noise"] = find("agree_on_noise")(noise, algorithm, meta, 3)
    office = find("Office")(folder, algorithm, federation, rounds=3, **more)
    with _repeatable(), messages(type(algorithm), found):
        outcome = office.server(dropouts="wait").run()
    found.sort(key=lambda each: (each[0], each[1], digest(each)))
    factors = {name: plain(office.factors(name)) for name in federation.names}
    return {
        "status": outcome.status,
        "factors": factors,
        "scores": plain(dict(outcome.scores)),
        "messages": digest(found),
        "participants": [list(each.participants) for each in outcome.history],
    }


@contextlib.contextmanager
def _repeatable() -> Iterator[None]:
    """Let the operating system's random bytes be the same in every recording; one thread asks for them."""
    kept, count = os.urandom, itertools.count()
    os.urandom = lambda size: hashlib.shake_256(str(next(count)).encode()).digest(size)
    try:
        yield
    finally:
        os.urandom = kept


def mpi(folder: Path) -> Iterator[tuple[str, Table]]:
    """Run every algorithm on the ranks of an MPI job; each rank records what it has."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    for name, reduction in itertools.product(names(), ("ordered", "allreduce")):
        engine = find("MPIEngine")(reduction=reduction, asynchronous=False)
        tables = world.allgather(run_once(name, data_for(name), engine))
        yield f"{name}, {reduction}", {f"rank {i} {key}": v for i, t in enumerate(tables) for key, v in t.items()}


def dask(folder: Path) -> Iterator[tuple[str, Table]]:
    """Run every algorithm on a Dask cluster of two worker processes."""
    import distributed

    options = {"threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    with distributed.LocalCluster(2, **options) as cluster, distributed.Client(cluster) as client:
        for name, reduction in itertools.product(names(), ("ordered", "tree")):
            engine = find("DaskEngine")(client, reduction)
            yield f"{name}, {reduction}", run_once(name, data_for(name), engine, listen=False)


def terms(folder: Path) -> Iterator[tuple[str, Table]]:
    """Compute the fingerprints of ten federations' terms, and what a party agrees to."""
    written = tomllib.loads((HERE / "terms.toml").read_text(encoding="utf-8"))
    for name, variant in written["variants"].items():
        content = {
            section: {**written["base"].get(section, {}), **variant.get(section, {})}
            for section in {*written["base"], *variant}
        }
        try:
            made = find("Terms").of(content)
            agreement = made.agreement("north")
        except Exception as error:
            yield name, {"refused": type(error).__name__}
        else:
            agreed = {f"agreement {field.name}": plain(getattr(agreement, field.name)) for field in fields(agreement)}
            yield name, {"fingerprint": made.fingerprint, **agreed}


def signatures(folder: Path) -> Iterator[tuple[str, Table]]:
    """List the public names of the package, with the parameters of each and their defaults."""
    for module in ("", ".algorithms", ".audit", ".data", ".metrics", ".plots", ".privacy", ".saved", ".selection"):
        place = importlib.import_module(f"fedfactor{module}")
        for name in sorted(getattr(place, "__all__", dir(place))):
            value = getattr(place, name)
            if name.startswith("_") or inspect.ismodule(value):
                continue
            try:
                parameters = inspect.signature(value).parameters.values() if callable(value) else ()
            except ValueError:
                parameters = ()
            table: Table = {"kind": "class" if inspect.isclass(value) else "other"}
            for position, each in enumerate(parameters):
                default = "required" if each.default is each.empty else repr(each.default).split(" at 0x")[0]
                where = position if each.kind is each.POSITIONAL_OR_KEYWORD else each.kind.description
                table[each.name] = f"{where}, {default}"
            yield f"fedfactor{module}:{name}", table


PARTS = {part.__name__: part for part in (local, private, processes, virtual, parties, mpi, dask, terms, signatures)}


def main() -> None:
    """Record one part and write the table: ``record.py PART FILE``."""
    part, file = sys.argv[1:3]
    if part not in PARTS:
        import stored

        PARTS.update(stored.PARTS)
    with tempfile.TemporaryDirectory(prefix="comparison-") as scratch:
        folder = Path(sys.argv[3]) if len(sys.argv) > 3 else Path(scratch)
        table = dict(pair for case, found in PARTS[part](folder) for pair in flat(f"{case}:", found))
    if int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0"))) == 0:
        Path(file).write_text(json.dumps(table, indent=0, sort_keys=True))


if __name__ == "__main__":
    main()
