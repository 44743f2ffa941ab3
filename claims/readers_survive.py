"""Damaged files end in DataError with the file's name: no foreign exception, no crash, no hang, no flood of memory.

Every reader gets mutants of sound files: flipped bits, cut and doubled pieces, odd numbers and words, zeros. They are
read in processes of their own, so that one that dies is noticed and named.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
COUNT = 12_000
_SECONDS = 90
_HDF5_SECONDS = 5.0  # after which a file on which HDF5 hangs is given up here; a user's reader waits for a minute
_PIECE = 2_000  # mutants a process reads before its memory is looked at
_FLOOR = 64 << 20  # bytes that a process may grow by whatever the file

WORDS = (
    b"nan", b"-", b"1E", b"1e999", b"99999999999999999999", b"-1", b"0", b"''", b'"', b"\xff\xfe", b"{", b"[[[[", b"\n",
    b"\r", b",", b";", b"\t", b"%", b"true", b"None", b"1_0", b"0x1", b"\x00", b"(2, 3)", b"= 'x'",
)  # fmt: skip


def _table() -> Any:
    rng = np.random.default_rng(0)
    X = np.round(rng.random((40, 6)) * 50, 3)
    X[3, 2] = 0
    return X


def _csv() -> bytes:
    lines = ["patient_id,na,k,hb,sex,plt,crea"]
    lines += [
        f"{1000 + i},{a},{b},{c},{'yes' if i % 2 else 'no'},{d},{e}" for i, (a, b, c, d, e, _) in enumerate(_table())
    ]
    return ("\n".join(lines) + "\n").encode()


def _long() -> bytes:
    lines = [f"{u},{i},{(u * i) % 5 + 0.5},{u}" for u in range(12) for i in range(0, 9, 2)]
    return ("\n".join(["userId,movieId,rating,timestamp", *lines]) + "\n").encode()


def _saved(save: Callable[[Any], Any]) -> bytes:
    buffer = io.BytesIO()
    save(buffer)
    return buffer.getvalue()


def _mtx(layout: str) -> bytes:
    X = _table()
    if layout == "array":
        head = b"%%MatrixMarket matrix array real general\n% made here\n40 6\n"
        return head + b"".join(b"%r\n" % float(x) for x in X.T.ravel())
    rows, columns = np.nonzero(X > 10)
    cells = b"".join(b"%d %d %r\n" % (i + 1, j + 1, float(X[i, j])) for i, j in zip(rows, columns, strict=True))
    return b"%%%%MatrixMarket matrix coordinate real general\n%% made here\n40 6 %d\n" % len(rows) + cells


def _sparse() -> bytes:
    from scipy import sparse

    return _saved(lambda buffer: sparse.save_npz(buffer, sparse.csr_matrix(np.where(_table() > 20, _table(), 0))))


def _arrow(kind: str) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    X = _table()
    table = pa.table({"name": [f"row {i}" for i in range(len(X))], **{f"c{j}": X[:, j] for j in range(6)},
                      "n": pa.array(range(40), pa.int32())})  # fmt: skip
    if kind == "parquet":
        return _saved(lambda buffer: pq.write_table(table, buffer, row_group_size=15))

    def save(buffer: Any) -> None:
        with pa.ipc.new_file(buffer, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
            file.write_table(table, max_chunksize=15)

    return _saved(save)


def _h5ad() -> bytes:
    import h5py

    def save(buffer: Any) -> None:
        with h5py.File(buffer, "w") as file:
            file.create_dataset("X", data=_table(), chunks=(10, 6), compression="gzip")
            for part, names in (("obs", [f"cell {i}" for i in range(40)]), ("var", [f"gene {j}" for j in range(6)])):
                group = file.create_group(part)
                group.attrs["_index"] = "_index"
                group.create_dataset("_index", data=names, dtype=h5py.string_dtype())
            layer = file.create_group("layers")
            layer.create_dataset("counts", data=np.round(_table()))

    return _saved(save)


def _terms() -> bytes:
    from fedfactor.federation.terms import DEFAULTS, features_hash
    from fedfactor.federation.terms_writer import dump

    content = json.loads(json.dumps(DEFAULTS))
    names = ["age", "weight"]
    content["algorithm"]["n_components"] = 1
    content["features"] |= {"names": names, "sha256": features_hash(names)}
    content["preprocess"] |= {"steps": ["log1p", "scale max"], "missing_values": "nan"}
    content["parties"] = {"north": {"key": "ecdsa-sha2-nistp384 AAAA"}, "south": {"key": "ecdsa-sha2-nistp384 BBBB"}}
    return dump(content).encode()


def _run() -> bytes:
    from fedfactor.io.result_folder import FORMAT

    about = {
        "format": FORMAT,
        "algorithm": "PooledNMF",
        "settings": {"n_components": 2},
        "seed": 1,
        "rounds": 3,
        "relative_error": 0.5,
        "status": "rounds",
        "bytes_up": 1,
        "bytes_down": 2,
        "seconds": 0.1,
        "asked": {"missing_values": "nan"},
        "preprocess": {"steps": ["log1p", "scale"], "weights": [1.0, 2.0]},
    }
    return json.dumps(about, indent=1).encode()


SOUND: dict[str, Callable[[], bytes]] = {
    "a.csv": _csv,
    "long.csv": _long,
    "a.csv.gz": lambda: gzip.compress(_csv(), mtime=0),
    "a.tsv": lambda: _csv().replace(b",", b"\t").replace(b".", b","),
    "a.npy": lambda: _saved(lambda buffer: np.save(buffer, _table())),
    "small.npy": lambda: _saved(lambda buffer: np.save(buffer, _table().astype("u1"))),
    "a.npz": _sparse,
    "named.npz": lambda: _saved(lambda buffer: np.savez_compressed(buffer, X=_table(), features=list("abcdef"))),
    "a.mtx": lambda: _mtx("coordinate"),
    "dense.mtx": lambda: _mtx("array"),
    "a.mtx.gz": lambda: gzip.compress(_mtx("coordinate"), mtime=0),
    "a.parquet": lambda: _arrow("parquet"),
    "a.feather": lambda: _arrow("feather"),
    "a.h5ad": _h5ad,
    "federation.toml": _terms,
    "names.features.json": lambda: json.dumps(["age", "weight", "größe"]).encode(),
    "run.json": _run,
}
"""Sound files by name; the ending says who reads them."""


def reader(path: Path) -> Callable[[], object]:
    """What a command does with such a file."""
    from fedfactor.core.errors import FedfactorError

    if path.name == "federation.toml":
        from fedfactor.federation.terms import Terms

        def agree() -> None:
            terms = Terms.read(path)
            with contextlib.suppress(FedfactorError):  # what does not fit together is told later, by those who have it
                terms.agreement()

        return agree
    if path.name.endswith(".features.json"):
        from fedfactor.federation.features import read_names

        return lambda: read_names(path)
    if path.name == "run.json":
        from fedfactor.cli.results import read_record

        return lambda: read_record(path.parent)
    from fedfactor.io.read import load, shard_of

    def table() -> object:
        shard: Any = shard_of(load(path))
        return float(shard.X.sum())  # maps are read, too

    return table


def mutant(sound: bytes, rng: np.random.Generator) -> bytes:
    """Damage a file."""
    data = bytearray(sound)
    for _ in range(int(rng.integers(1, 5))):
        if not data:
            break
        at = int(rng.integers(len(data)))
        match int(rng.integers(9)):
            case 0 | 1:
                data[at] ^= 1 << int(rng.integers(8))
            case 2:
                data[at] = int(rng.integers(256))
            case 3:
                del data[at : at + int(rng.integers(1, 40))]
            case 4:
                data[at:at] = data[int(rng.integers(len(data))) :][: int(rng.integers(1, 60))]
            case 5:
                data[at : at + int(rng.integers(1, 9))] = bytes(int(rng.integers(1, 9)))
            case 6 | 7:
                data[at : at + int(rng.integers(0, 6))] = WORDS[int(rng.integers(len(WORDS)))]
            case _:
                if rng.random() < 0.3:
                    del data[at:]
                else:
                    data[at : at + 4] = int(rng.integers(2**32)).to_bytes(4, "little")
    return bytes(data)


def fork_hdf5() -> list[int]:
    """Let the process that looks at an HDF5 file be a fork of this one: the same work without starting Python anew.

    Returns a list that gets the memory of each such process, in kilobytes.
    """
    import h5py

    from fedfactor.io.formats import h5ad
    from fedfactor.io.formats import hdf5_process as hdf5

    memory: list[int] = []

    def run(command: list[str], *, timeout: float, **_: object) -> subprocess.CompletedProcess[str]:
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                hdf5.main(Path(command[3]), Path(command[4]), command[5])
                os._exit(0)
            os._exit(1)
        end, code = time.monotonic() + timeout, None
        while code is None:
            done, status, used = os.wait4(child, os.WNOHANG)
            if done:
                memory.append(used.ru_maxrss)
                code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                memory.append(os.wait4(child, 0)[2].ru_maxrss)
                raise subprocess.TimeoutExpired(command, timeout)
            else:
                time.sleep(0.001)
        return subprocess.CompletedProcess(command, code)

    assert h5py.version.hdf5_version  # it is here before the forks
    h5ad._PATIENCE = _HDF5_SECONDS
    h5ad.subprocess = types.SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
    return memory


def work(name: str, seed: int, first: int, last: int) -> None:
    """Read mutants in this process; say before each which one it is, and at the end what they came to."""
    from fedfactor.core.errors import FedfactorError

    sound = SOUND[name]()
    forks = fork_hdf5() if name.endswith(".h5ad") else [0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(sound)
        read = reader(path)
        read()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        signal.signal(signal.SIGALRM, _late)
        found: Counter[str] = Counter()
        odd: list[str] = []
        for number in range(first, last):
            print(number, flush=True)
            path.write_bytes(mutant(sound, np.random.default_rng([seed, number])))
            signal.alarm(_SECONDS)
            try:
                read()
                found["read"] += 1
            except FedfactorError as error:
                found["refused"] += 1
                if folder not in str(error):
                    odd.append(f"{number}: does not name the file: {error}"[:300])
            except _Late:
                odd.append(f"{number}: hangs")
            except Exception as error:
                odd.append(f"{number}: {type(error).__name__}: {error}"[:300])
            finally:
                signal.alarm(0)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before + max(forks) - forks[0]) * 1024
        print(json.dumps({"found": found, "odd": odd, "grown": grown}), flush=True)


class _Late(BaseException):
    """Raised by the alarm: no reader may catch it."""


def _late(*_: object) -> None:
    raise _Late


def survive(name: str, count: int, seed: int = 0, piece: int = _PIECE) -> dict[str, Any]:
    """Read so many mutants of one file; count what they came to."""
    found: Counter[str] = Counter()
    odd: list[str] = []
    grown, first, began = 0, 0, time.monotonic()
    while first < count:
        last = min(first + piece, count)
        command = [sys.executable, "-m", "claims.readers_survive", name, str(seed), str(first), str(last)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        lines = done.stdout.strip().splitlines()
        if done.returncode == 0:
            about = json.loads(lines[-1])
            found.update(about["found"])
            odd += about["odd"]
            grown = max(grown, about["grown"])
            first = last
        else:  # it died: of which mutant, it said before
            if not lines:
                raise RuntimeError(f"The sound {name} cannot be read: {done.stderr[-500:]}")
            odd.append(f"{lines[-1]}: the process ended with {done.returncode}: {done.stderr[-200:]}")
            first = int(lines[-1]) + 1
    return {
        "mutants": count, **found, "odd": len(odd), "first_odd": odd[:5], "grown_mb": round(grown / 2**20, 1),
        "bytes": len(SOUND[name]()), "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip


def claim(count: int = COUNT) -> dict[str, Any]:
    results = {name: survive(name, count) for name in SOUND}
    holds = all(
        each["odd"] == 0 and each["grown_mb"] * 2**20 <= max(_FLOOR, 10 * each["bytes"]) for each in results.values()
    )
    return {"holds": holds, "readers": results}


if __name__ == "__main__":
    work(sys.argv[1], *map(int, sys.argv[2:5]))
