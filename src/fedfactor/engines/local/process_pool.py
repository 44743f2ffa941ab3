"""Clients served by processes of their own, spoken to in framed safetensors bytes over pipes.

Nothing is pickled: the algorithm travels as its import name and its settings, rows and states as arrays. A worker ends
by itself when this process ends, because its input then closes. Written by hand because executors do not keep a client
with the worker that holds its rows and its state.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fedfactor.core.algorithm import (
    Algorithm,
    LocalFactors,
    Meta,
    Round,
    Score,
    algorithm_tag,
    download_for,
    settings_of,
)
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.errors import IncompatibleError, WorkerError
from fedfactor.core.grid import BlockShard, GridShard
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.pytree import Tree
from fedfactor.core.wire import from_bytes, to_bytes
from fedfactor.engines.local.message_framing import read_frame, write_frame
from fedfactor.engines.round import Clients, Receiving


def shard_tree(shard: Shard) -> dict[str, Any]:
    """Lay a shard out as arrays."""
    X = shard.X
    if hasattr(X, "detach"):
        raise IncompatibleError("Worker processes take NumPy and SciPy data, not tensors. Use backend='threads'.")
    tree: dict[str, Any] = {}
    if isinstance(shard, GridShard):
        tree |= {"columns": shard_tree(Shard(shard.columns)), "starts": np.array([shard.row_start, shard.column_start])}
    if isinstance(shard, BlockShard):
        tree["block"] = np.array([*shard.position, *shard.starts, shard.width])
    if is_sparse(X):
        X = X.tocsr()
        tree |= {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.asarray(X.shape)}
    else:
        tree["X"] = X
    if isinstance(shard.mask, str):
        tree["stored"] = np.asarray(True)
    elif shard.mask is not None:
        tree["mask"] = shard.mask
    held = shard.holdout
    if held is not None and is_sparse(held):
        tree |= {"held data": held.data, "held indices": held.indices, "held indptr": held.indptr}
    elif held is not None:
        tree["holdout"] = held
    return tree


class ProcessPool(Clients):
    """Worker processes, each with its own clients for the whole run."""

    def __init__(self, algorithm: Algorithm, federation: Federation, meta: Meta, workers: int, threads: int) -> None:
        if type(algorithm).__module__ == "__main__":
            raise IncompatibleError(
                f"{type(algorithm).__name__} is defined in the main script, which worker processes cannot import. Move "
                "it to a module of its own, or use backend='threads'."
            )
        self._names = meta.clients
        self._workers: list[subprocess.Popen[bytes]] = []
        self._home = {name: position % workers for position, name in enumerate(self._names)}
        about = {
            "algorithm": algorithm_tag(type(algorithm)),
            "settings": settings_of(algorithm),
            "meta": asdict(meta),
            "threads": threads,
        }
        # A worker must import what this process imports, wherever that was found.
        path = os.pathsep.join(os.path.abspath(entry or ".") for entry in sys.path)
        environment = {**os.environ, "PYTHONPATH": path}
        command = [sys.executable, "-m", "fedfactor.engines.local.worker_process"]
        for _ in range(workers):
            worker = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._workers.append(worker)
        try:
            self._set_up(about, federation)
        except BaseException:
            self.close()
            raise

    def _set_up(self, about: dict[str, Any], federation: Federation) -> None:
        for position in range(len(self._workers)):
            self._ask(position, {"do": "job", **about})
        for name in self._names:
            self._ask(self._home[name], {"do": "shard", "name": name}, to_bytes(shard_tree(federation.shard(name))))
        for position in range(len(self._workers)):
            self._answer(position)

    def _ask(self, position: int, order: dict[str, Any], payload: bytes = b"") -> None:
        pipe = self._workers[position].stdin
        assert pipe is not None
        try:
            write_frame(pipe, json.dumps(order).encode(), payload)
        except (BrokenPipeError, OSError):
            self._answer(position)  # the worker's own words, if it left any
            raise WorkerError("A worker process ended before it was given its work.") from None

    def _answer(self, position: int) -> tuple[dict[str, Any], bytes]:
        pipe = self._workers[position].stdout
        assert pipe is not None
        frame = read_frame(pipe)
        if frame is None:
            code = self._workers[position].wait()
            raise WorkerError(
                f"A worker process ended with code {code} in the middle of its work (-9: killed, often for lack of "
                "memory). Use fewer workers, or resume from a checkpoint."
            )
        head = json.loads(frame[0])
        if "error" in head:
            raise WorkerError(f"Client {head.get('name')!r} failed in its worker: {head['error']}")
        return head, frame[1]

    def begin(self, seed: int) -> None:
        """Make every client's first state."""
        for name in self._names:
            self._ask(self._home[name], {"do": "begin", "name": name, "seed": seed})
            self._answer(self._home[name])

    def restore(self, states: Mapping[str, Tree]) -> None:
        """Take up states that were saved."""
        for name, state in states.items():
            self._ask(self._home[name], {"do": "restore", "name": name}, to_bytes({"state": state}))
            self._answer(self._home[name])

    def states(self) -> dict[str, Tree]:
        """Hand out all states, to be saved."""
        found: dict[str, Tree] = {}
        for name in self._names:
            self._ask(self._home[name], {"do": "state", "name": name})
            found[name] = from_bytes(self._answer(self._home[name])[1])["state"]
        return found

    def _spread(self, names: Sequence[str], order: dict[str, Any], down: Tree) -> Iterator[tuple[str, bytes]]:
        """Ask every worker for its share at once, then read the answers in name order."""
        for position in range(len(self._workers)):
            mine = [name for name in names if self._home[name] == position]
            if not mine:
                continue
            parts = {id(part): part for part in (download_for(down, name) for name in mine)}
            index = {key: str(i) for i, key in enumerate(parts)}
            which = [index[id(download_for(down, name))] for name in mine]
            payload = to_bytes({index[key]: part for key, part in parts.items()})
            self._ask(position, {**order, "names": mine, "downs": which}, payload)
        for name in names:
            yield name, self._answer(self._home[name])[1]

    def exchange(self, down: Tree, at: Round, receiver: Receiving) -> None:
        """Let these clients take one step, all workers at once."""
        where = {"seed": at.seed, "index": at.index, "participants": at.participants}
        for name, data in self._spread(at.participants, {"do": "step", "at": where}, down):
            up = from_bytes(data)["up"]
            if up is not None:
                receiver.add(name, up)

    def end(self, down: Tree) -> Iterator[tuple[str, LocalFactors, Score]]:
        """Let every client finish."""
        for name, data in self._spread(self._names, {"do": "end"}, down):
            kept = from_bytes(data)
            yield name, kept["factors"], kept["score"]

    def close(self) -> None:
        """Close the workers' inputs, which ends them, and wait for each."""
        for worker in self._workers:
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # bytes that a dead worker will not read
                        pipe.close()
        for worker in self._workers:
            try:
                worker.wait(timeout=10)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
