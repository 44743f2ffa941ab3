"""Answers that no honest client sends, made from an honest one. Used in tests and, over Flower, in claims."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Score
from fedfactor.core.pytree import tree_map
from fedfactor.core.wire import from_bytes, to_bytes
from fedfactor.network.message_format import read_head, seal


def _resealed(**changes: Any) -> Callable[[bytes], bytes]:
    def forge(answer: bytes) -> bytes:
        return seal(replace(read_head(answer), **changes), from_bytes(answer))

    return forge


def _values(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[bytes], bytes]:
    def forge(answer: bytes) -> bytes:
        return seal(read_head(answer), tree_map(lambda leaf: change(np.array(leaf)), from_bytes(answer)))

    return forge


def _header(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    """Rewrite the JSON header and leave the bytes of the arrays alone."""

    def forge(answer: bytes) -> bytes:
        size = struct.unpack("<Q", answer[:8])[0]
        header = json.loads(answer[8 : 8 + size])
        changed = change(header)
        text = changed if isinstance(changed, bytes) else json.dumps(header if changed is None else changed).encode()
        return struct.pack("<Q", len(text)) + text + answer[8 + size :]

    return forge


def _head(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    def rewrite(header: dict[str, Any]) -> None:
        head = json.loads(header["__metadata__"]["message"])
        change(head)
        header["__metadata__"]["message"] = json.dumps(head)

    return _header(rewrite)


def _first_leaf(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    def rewrite(header: dict[str, Any]) -> None:
        change(header[next(name for name in header if name != "__metadata__")])

    return _header(rewrite)


def _npy(value: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, value, allow_pickle=True)
    return buffer.getvalue()


def _bomb(_: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", b"\0" * (64 << 20))
    return buffer.getvalue()


class _Evil:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('code of a peer was run')",))


def _stray(answer: bytes) -> bytes:
    tree = from_bytes(answer)
    parts = {name: getattr(tree, name) for name in asdict(tree)} | {"smuggled": np.zeros(3)}
    honest = to_bytes(parts, {"message": json.dumps(asdict(read_head(answer)))})
    size = struct.unpack("<Q", honest[:8])[0]
    header = json.loads(honest[8 : 8 + size])
    original = json.loads(answer[8 : 8 + struct.unpack("<Q", answer[:8])[0]])
    header["__metadata__"]["outline"] = original["__metadata__"]["outline"]
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + honest[8 + size :]


KINDS: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda a: b"",
    "noise": lambda a: np.random.default_rng(0).bytes(5000),
    "cut short": lambda a: a[: len(a) // 2],
    "cut by one byte": lambda a: a[:-1],
    "bytes appended": lambda a: a + b"\0" * 64,
    "header of 2^62 bytes": lambda a: struct.pack("<Q", 1 << 62) + a[8:],
    "header longer than the message": lambda a: struct.pack("<Q", len(a)) + a[8:],
    "header that is no JSON": _header(lambda h: b"{" * 40),
    "header nested 100000 deep": _header(lambda h: b"[" * 100_000),
    "header that is a list": _header(lambda h: [1, 2, 3]),
    "pickle": lambda a: pickle.dumps(_Evil()),
    "npy with a pickled object": lambda a: _npy(np.array([_Evil()], dtype=object)),
    "npy that claims 16 GB": lambda a: _npy(np.zeros(1)).replace(b"(1,)", b"(2000000000,)"),
    "zip bomb": _bomb,
    "NaN": _values(lambda x: x * np.nan),
    "infinity": _values(lambda x: x + np.inf),
    "wrong dtype": _values(lambda x: x.astype(np.float32)),
    "wrong shape": _values(lambda x: np.concatenate([x, x]) if x.ndim else x),
    "transposed": _values(lambda x: np.ascontiguousarray(x.T) if x.ndim == 2 else x[None]),
    "declares 2^40 rows": _first_leaf(lambda leaf: leaf.update(shape=[1 << 40, 12])),
    "declares a negative size": _first_leaf(lambda leaf: leaf.update(shape=[-3, 3])),
    "declares an unknown dtype": _first_leaf(lambda leaf: leaf.update(dtype="F128")),
    "overlapping leaves": _first_leaf(lambda leaf: leaf.update(data_offsets=[0, 8])),
    "offsets beyond the end": _first_leaf(lambda leaf: leaf.update(data_offsets=[1 << 40, (1 << 40) + 72])),
    "leaf left out": _header(lambda h: {k: v for k, v in h.items() if k != "G"}),
    "leaf smuggled in": _stray,
    "another message": lambda a: seal(read_head(a), Score.of(1.0, 2.0, 3.0)),
    "unknown message": _header(lambda h: h["__metadata__"].update(outline='["os:system",{"G":1}]')),
    "outline that fits nothing": _header(lambda h: h["__metadata__"].update(outline='["x",')),
    "no outline": _header(lambda h: h["__metadata__"].pop("outline") and None),
    "no head": _header(lambda h: h["__metadata__"].pop("message") and None),
    "head with a field too many": _head(lambda h: h.update(sudo=True)),
    "head with a field too few": _head(lambda h: h.pop("run")),
    "head with a huge text": _head(lambda h: h.update(run="x" * 500_000)),
    "head with a negative round": _head(lambda h: h.update(index=-1)),
    "head with a round of true": _head(lambda h: h.update(index=True)),
    "head of an unknown kind": _head(lambda h: h.update(kind="shutdown")),
    "scales in an exact run": _head(lambda h: h.update(scales=[1e300])),
    "another run": _resealed(run="0" * 16),
    "other terms": _resealed(terms="0" * 64),
    "another client's name": _resealed(client="north"),
    "an older round": _resealed(index=0),
    "a later round": _resealed(index=1 << 40),
    "another past": _resealed(since=40),
    "an attempt nobody made": _resealed(attempt=7),
    "the answer to another question": _resealed(kind="end"),
    "50 MB": lambda a: a + b"\0" * (50 << 20),
}
