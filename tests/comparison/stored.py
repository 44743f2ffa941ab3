"""Files that a source tree writes, what a tree makes of such files, and the exit codes of commands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from record import Table, data_for, find, make, names, plain, run_once

COMMANDS = (
    "--version",
    "--help",
    "nonsense",
    "fit",
    "fit north.csv -o out-1",
    "fit north.csv south.csv -k 2 --rounds 3 --seed 1 -o out-2 -q",
    "fit north.csv south.csv -k 2 --rounds 3 --seed 1 -o out-2 -q",
    "fit north.csv south.csv -k 2 --rounds 3 --seed 2 -o out-2 -q",
    "fit north.csv south.csv -k 0 -o out-3",
    "fit north.csv absent.csv -k 2 -o out-4",
    "fit north.csv narrow.csv -k 2 -o out-5",
    "fit words.csv -k 2 -o out-6",
    "fit holes.csv north.csv -k 2 -o out-7",
    "fit holes.csv north.csv -k 2 -o out-8 --missing nan --rounds 3 --seed 1 -q",
    "fit holes.csv north.csv -k 2 -o out-9 --missing never",
    "fit north.csv south.csv -k 2 -a no-such-method -o out-10",
    "fit north.csv south.csv -k 2 -a pooled-bmf -o out-11",
    "fit north.csv south.csv -k 2 -a pooled-bmf --binarize 0.5 --rounds 3 --seed 1 -o out-12 -q",
    "fit north.csv south.csv -k 2 --set tol=wide -o out-13",
    "fit north.csv south.csv -k 2 --set colour=1 -o out-14",
    "fit north.csv south.csv -k 2 --privacy magic -o out-15",
    "fit north.csv south.csv west.csv -k 2 --privacy secure-sum --rounds 3 --seed 1 -o out-16 -q",
    "fit north.csv south.csv -k 2 --privacy dp -o out-17",
    "fit north.csv south.csv west.csv -k 2 --privacy dp --delta 1e-4 --epsilon 5 --rounds 2 --row-bound 3 "
    "--ledger l.jsonl --budget 6 -o out-18 -q",
    "fit north.csv south.csv west.csv -k 2 --privacy dp --delta 1e-4 --epsilon 5 --rounds 2 --row-bound 3 "
    "--ledger l.jsonl -o out-19 -q",
    "fit north.csv south.csv west.csv -k 2 --privacy median --rounds 3 --seed 1 -o out-20 -q",
    "fit north.csv south.csv -k 2 --engine telephone -o out-21",
    "fit north.csv south.csv -k 2 --scale mode -o out-22",
    "fit north.csv south.csv -k 2 --scale max --log1p --rounds 3 --seed 1 -o out-23 -q",
    "info out-2",
    "info north.csv",
    "inspect north.csv",
    "transform out-2 north.csv -o U.npy",
    "export out-2 -o V.csv",
    "settings pooled-nmf",
    "settings no-such-method",
    "rank north.csv south.csv --ranks 2,3 --rounds 3 --seed 1 -q",
    "federation show absent.toml",
    "federation init --nonsense",
    "doctor",
)
NOISY = ("out-18",)


# ------------------------------------------------------------------------------------------------------------- commands
def _files(folder: Path) -> None:
    rng = np.random.default_rng(5)
    V = rng.random((3, 6))
    head = ",".join("abcdef")

    def save(name: str, X: np.ndarray, head: str = head) -> None:
        np.savetxt(folder / name, X, "%.6f", delimiter=",", header=head, comments="")

    save("north.csv", rng.random((60, 3)) @ V)
    save("south.csv", rng.random((70, 3)) @ V)
    save("west.csv", rng.random((80, 3)) @ V)
    save("narrow.csv", rng.random((60, 4)), "a,b,c,d")
    holes = rng.random((60, 3)) @ V
    holes[::7, 2] = np.nan
    save("holes.csv", holes)
    (folder / "words.csv").write_text("a,b\nred,green\nblue,red\n")


def _command(folder: Path, line: str) -> int:
    call = [sys.executable, "-W", "ignore", "-m", "fedfactor", *line.split()]
    return subprocess.run(call, cwd=folder, capture_output=True, timeout=300).returncode


def commands(folder: Path) -> Iterator[tuple[str, Table]]:
    """Run commands one after the other in one folder: right ones, wrong ones, and what results they write."""
    _files(folder)
    for position, line in enumerate(COMMANDS):
        yield f"{position:02} {line}", {"exit code": _command(folder, line)}
    for out in sorted(folder.glob("out-*")):
        if out.name not in NOISY:  # its noise comes from the operating system
            yield out.name, _result(out)


def _result(folder: Path) -> Table:
    """Digest what a folder of results holds: factors bit by bit, and the record without times."""
    from safetensors.numpy import load_file

    table: Table = {"files": sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())}
    for file in sorted(folder.rglob("*.safetensors")):
        table[str(file.relative_to(folder))] = plain(load_file(file))
    for file in folder.glob("shared/run.json"):
        record = json.loads(file.read_text())
        kept = {key: record.get(key) for key in ("algorithm", "settings", "seed", "status", "clients")}
        table["run.json"] = plain(kept)
    return table


# ----------------------------------------------------------------------------------------- files of another tree
def write(folder: Path) -> Iterator[tuple[str, Table]]:
    """Write results, checkpoints of unfinished runs, a ledger and parties of an unfinished run, for ``read``."""
    import fedfactor

    _files(folder)
    for line in (
        "fit north.csv south.csv -k 2 --rounds 3 --seed 1 -o result -q",
        "fit holes.csv north.csv -k 2 --missing nan --rounds 3 --seed 1 -o holes -q",
        "fit north.csv south.csv -k 2 -a felb --binarize 0.5 --rounds 3 --seed 1 -o binary -q",
    ):
        _command(folder, line)
    X = np.loadtxt(folder / "north.csv", delimiter=",", skiprows=1)
    fedfactor.save(fedfactor.PooledNMF(2, rounds=3, random_state=1).fit(X), folder / "estimator")
    for name in names():
        run_once(name, data_for(name), _engine(), checkpoint=find("Checkpoint")(folder / "kept" / name), rounds=3)
    _spend(folder, X)
    for name in ("PooledNMF", "FNMF", "FELB"):
        office = find("Office")(folder / "parties" / name, make(name), data_for(name), rounds=4)
        _kill(office, 7)
    yield "written", {"files": len(list(folder.rglob("*"))) > 100}


def _engine() -> object:
    import fedfactor

    return fedfactor.LocalEngine(workers=2)


def _spend(folder: Path, X: np.ndarray) -> Table:
    """Pay for a run from the ledger of some rows."""
    import fedfactor

    ledger = find("Ledger")(folder / "ledger.jsonl", epsilon=6.0, delta=1e-4, unit="row")
    privacy = fedfactor.dp(2.5, 1e-4, row_bound=3.0, rows=X.shape[0], noise_seed=3, ledger=ledger)
    owners = {"a": X[:20], "b": X[20:40], "c": X[40:]}
    try:
        run = fedfactor.run(make("PooledNMF"), owners, engine=_engine(), rounds=2, seed=1, privacy=privacy)
    except Exception as error:
        return {"refused": type(error).__name__}
    return {"V": plain(run.V), "entries": len(ledger.entries()), "epsilon": float(ledger.epsilon(as_if=True)).hex()}


def _kill(office: object, message: int) -> None:
    """Let the server die when so many messages were sent."""

    def tamper(name: str, answer: bytes) -> list[object]:
        if len(office.post.messages) == message:  # type: ignore[attr-defined]
            raise KeyboardInterrupt
        return [arrival(name, answer)]

    arrival = find("Arrival")
    office.post.tamper = tamper  # type: ignore[attr-defined]
    try:
        office.server(dropouts="wait").run()  # type: ignore[attr-defined]
    except KeyboardInterrupt:
        return
    raise RuntimeError("the server was not stopped")


def read(folder: Path) -> Iterator[tuple[str, Table]]:
    """Read results, resume runs, and spend from a ledger, whichever tree wrote them."""
    import fedfactor

    X = np.loadtxt(folder / "north.csv", delimiter=",", skiprows=1)
    for name in ("result", "holes", "binary", "estimator"):
        try:
            kept = fedfactor.load(folder / name)
            yield f"load {name}", {"U": plain(kept.transform(X > 0.5 if name == "binary" else X))}
        except Exception as error:
            yield f"load {name}", {"refused": type(error).__name__}
    for name in ("result", "holes", "binary"):
        yield f"info {name}", {"exit code": _command(folder, f"info {name}"), **_result(folder / name)}
    line = "fit north.csv south.csv -k 2 --rounds 6 --seed 1 -o result -q"
    yield "fit again", {"exit code": _command(folder, line), **_result(folder / "result")}
    for name in names():
        checkpoint = find("Checkpoint")(folder / "kept" / name)
        yield f"resume {name}", run_once(name, data_for(name), _engine(), checkpoint=checkpoint, rounds=6)
    for again in (1, 2):
        yield f"ledger {again}", _spend(folder, X)
    for name in ("PooledNMF", "FNMF", "FELB"):
        office = find("Office")(folder / "parties" / name, make(name), data_for(name), rounds=4)
        outcome = office.server(dropouts="wait").run()
        factors = {party: plain(office.factors(party)) for party in data_for(name)}
        yield f"parties {name}", {"status": outcome.status, "rounds": len(outcome.history), "factors": factors}


PARTS = {part.__name__: part for part in (commands, write, read)}
