"""A worker process of the local engine: holds some clients and works on them until its input closes."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from contextlib import AbstractContextManager
from typing import IO, Any, cast

import numpy as np

from fedfactor.core.algorithm import Algorithm, Meta, Round
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import DataError
from fedfactor.core.grid import BlockShard, GridShard
from fedfactor.core.pytree import Tree, freeze
from fedfactor.core.threads import limit_threads
from fedfactor.core.wire import from_bytes, to_bytes
from fedfactor.engines import client_step as client
from fedfactor.engines.local.message_framing import read_frame, write_frame


def shard_of(tree: dict[str, Any]) -> Shard:
    """Build a shard from the arrays it travelled as."""
    X = tree["X"] if "X" in tree else _csr(tree["data"], tree["indices"], tree["indptr"], tuple(tree["shape"]))
    held = tree.get("holdout")
    if "held data" in tree:
        held = _csr(tree["held data"], tree["held indices"], tree["held indptr"], X.shape)
    if "columns" in tree:
        rows, columns = (int(start) for start in tree["starts"])
        X = X.tocsc() if hasattr(X, "tocsc") else np.asfortranarray(X)  # as grids are cut: bits may depend on it
        return GridShard(X, columns=shard_of(tree["columns"]).X, row_start=rows, column_start=columns)
    if "block" in tree:
        i, j, row, column, width = (int(number) for number in tree["block"])
        return BlockShard(X, position=(i, j), starts=(row, column), width=width)
    return Shard(X, "stored" if "stored" in tree else tree.get("mask"), None, held)


def _csr(data: Any, indices: Any, indptr: Any, shape: Any) -> Any:
    # SciPy has no types.
    from scipy.sparse import csr_array  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    return cast("Any", csr_array)((data, indices, indptr), shape=shape)


def _as_tuples(value: Any) -> Any:
    """Turn the lists of JSON back into the tuples that settings are made of."""
    return tuple(_as_tuples(part) for part in value) if isinstance(value, list) else value  # type: ignore[reportUnknownVariableType]


def algorithm_of(tag: str, settings: dict[str, Any]) -> Algorithm:
    """Build an algorithm from its import name and its fields as plain data."""
    module, _, name = tag.partition(":")
    kind: Any = importlib.import_module(module)
    for part in name.split("."):
        kind = getattr(kind, part)
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise DataError(f"{tag!r} is not an algorithm.")
    return kind(**{key: _as_tuples(value) for key, value in settings.items()})


class Worker:
    """Clients by name: their rows, their states, and the orders that concern them."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._algorithm: Algorithm
        self._meta: Meta
        self._cap: AbstractContextManager[None]
        self._shards: dict[str, Shard] = {}
        self._states: dict[str, Tree] = {}

    def job(self, order: dict[str, Any], payload: bytes) -> None:
        """Learn what to run."""
        self._algorithm = algorithm_of(order["algorithm"], order["settings"])
        self._meta = Meta(**{word: _as_tuples(value) for word, value in order["meta"].items()})
        # Held by name for as long as this process lives: a cap without a reference is collected, and lifted at once.
        self._cap = limit_threads(order["threads"])
        self._cap.__enter__()
        self._reply({})

    def shard(self, order: dict[str, Any], payload: bytes) -> None:
        """Take the rows of one client."""
        self._shards[order["name"]] = shard_of(from_bytes(payload))

    def begin(self, order: dict[str, Any], payload: bytes) -> None:
        """Make one client's first state."""
        name = order["name"]
        self._states[name] = client.begin(self._algorithm, self._shards[name], self._meta, order["seed"], name)
        self._reply({})

    def restore(self, order: dict[str, Any], payload: bytes) -> None:
        """Take up a saved state."""
        self._states[order["name"]] = freeze(from_bytes(payload)["state"])
        self._reply({})

    def state(self, order: dict[str, Any], payload: bytes) -> None:
        """Hand out a state, to be saved."""
        self._reply({}, {"state": self._states[order["name"]]})

    def step(self, order: dict[str, Any], payload: bytes) -> None:
        """Let clients take one step each, answering one by one."""
        where: dict[str, Any] = order["at"] | {"participants": tuple(order["at"]["participants"])}
        downs = freeze(from_bytes(payload))
        for name, which in zip(order["names"], order["downs"], strict=True):
            order["name"] = name
            at = Round(**where, client=name)
            state, up = client.step(self._algorithm, self._shards[name], self._states[name], downs[which], at)
            self._states[name] = state
            self._reply({}, {"up": up})

    def end(self, order: dict[str, Any], payload: bytes) -> None:
        """Let clients finish."""
        downs = freeze(from_bytes(payload))
        for name, which in zip(order["names"], order["downs"], strict=True):
            order["name"] = name
            factors, score = client.end(self._algorithm, self._shards[name], self._states.pop(name), downs[which])
            self._reply({}, {"factors": factors, "score": score})

    def _reply(self, head: dict[str, Any], tree: Tree = None) -> None:
        write_frame(self._out, json.dumps(head).encode(), b"" if tree is None else to_bytes(tree))


def serve(source: IO[bytes], out: IO[bytes]) -> None:
    """Carry out orders until they end; the first that fails is answered with its reason, and is the last."""
    worker = Worker(out)
    orders = {name: getattr(worker, name) for name in ("job", "shard", "begin", "restore", "state", "step", "end")}
    while (frame := read_frame(source)) is not None:
        order: dict[str, Any] = json.loads(frame[0])
        try:
            orders[order["do"]](order, frame[1])
        except BrokenPipeError:
            return  # the requesting process ended, so there is no receiver for a result
        except Exception as error:
            where = traceback.format_exc(limit=-2)
            head = {"error": f"{type(error).__name__}: {error}\n{where}", "name": order.get("name")}
            write_frame(out, json.dumps(head).encode())
            return


def main() -> None:
    """Serve orders from standard input until it closes."""
    # Ctrl-C reaches every process of a terminal. The party that gives the orders answers it, and closes this one's
    # input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever client code prints must not enter the frames
    serve(sys.stdin.buffer, out)
    os._exit(0)  # nothing is left to flush, and what a broken pipe still holds cannot be


if __name__ == "__main__":
    main()
