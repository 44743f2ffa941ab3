"""Records to bytes and back, as safetensors. Nothing read here can run code, and nothing is used before it is checked.

A peer is not trusted: the size of the bytes, the header, and every declared name, dtype and shape are compared with
what the algorithm announced *before* any array is made; values are then checked to be finite.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load, save

from fedfactor.core.errors import NotFiniteError, ProtocolError
from fedfactor.core.former_identifiers import current_identifier
from fedfactor.core.pytree import (
    Array,
    Tree,
    children,
    is_leaf,
    is_numpy,
    is_record,
    kind_of,
    known_type,
    leaves,
    to_numpy,
    type_tag,
    visibility,
)

HEADER_LIMIT = 1 << 20
"""Longest header in bytes that is read from a peer."""

_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}


_ROUNDING = {"float64": (1e-9, 1e-10), "float32": (1e-5, 1e-6), "float16": (1e-2, 1e-3)}


class Leaf(NamedTuple):
    """What one leaf of a message may be: its dtype, and its shape (the largest one when ``exact`` is false).

    ``tolerance`` is by how much a floating-point leaf of a download may differ between two machines that computed it
    from the same totals: relative to each number, and relative to the largest one.
    """

    dtype: str
    shape: tuple[int, ...]
    exact: bool = True
    tolerance: tuple[float, float] | None = None

    @property
    def rounding(self) -> tuple[float, float]:
        """The declared tolerance, or the usual one of the dtype."""
        return self.tolerance or _ROUNDING.get(self.dtype, (0.0, 0.0))

    def admits(self, dtype: str, shape: tuple[int, ...]) -> bool:
        """Return whether an array of this dtype and shape was announced."""
        if dtype != self.dtype or len(shape) != len(self.shape):
            return False
        if self.exact:
            return shape == self.shape
        return all(size <= most for size, most in zip(shape, self.shape, strict=True))

    @property
    def nbytes(self) -> int:
        """Most bytes this leaf can take."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


Spec = Mapping[str, Leaf]
"""Leaf paths of one message type and what each may be."""


def _outline(node: Tree) -> Any:
    if node is None:
        return 0
    if is_leaf(node):
        return 1
    tag = type_tag(kind_of(node)) if is_record(node) else ""
    return [tag, {name: _outline(child) for name, child in children(node)}]


def to_bytes(node: Tree, extra: Mapping[str, str] | None = None) -> bytes:
    """Write a record (or a nested dict of records) as safetensors bytes, with optional text beside it.

    Examples
    --------
    >>> from fedfactor.core.algorithm import Score
    >>> from_bytes(to_bytes(Score.of(2.0, 3, 4.0))).n
    array(3.)
    """
    outline = json.dumps(_outline(node), separators=(",", ":"))
    arrays: dict[str, Array] = {}
    for path, leaf in leaves(node):
        name = path or "value"
        if name in arrays:
            raise ProtocolError(f"Two leaves are both called {name!r}: a name with a dot meets a nested one.")
        arrays[name] = to_numpy(leaf)
    data: bytes = save(arrays, metadata={**(extra or {}), "outline": outline})  # type: ignore[reportUnknownVariableType]
    return data


def read_header(data: bytes | memoryview, *, limit: int = HEADER_LIMIT) -> tuple[dict[str, Any], dict[str, str]]:
    """Read only the header: declared leaves and the text beside them. Allocates nothing for the leaves."""
    size = len(data)
    length = int.from_bytes(bytes(data[:8]), "little") if size >= 8 else -1
    if not 2 <= length <= min(limit, size - 8):
        raise ProtocolError(
            f"Not a safetensors message: {size} bytes whose header claims {length} bytes. It is damaged or hostile."
        )
    try:
        header: dict[str, Any] = json.loads(bytes(data[8 : 8 + length]))
        text: dict[str, str] = header.pop("__metadata__", {})
        outline_ok = isinstance(text.get("outline"), str)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ProtocolError(
            f"The header of a message is not readable JSON ({error}). It is damaged or hostile."
        ) from None
    if not outline_ok:
        raise ProtocolError(
            "The header of a message does not say what the message is. It was not written by fedfactor."
        )
    return header, text


def _declared(header: Mapping[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, entry in header.items():
        try:
            dtype = _DTYPES[entry["dtype"]]
            shape = tuple(int(size) for size in entry["shape"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ProtocolError(f"Leaf {name!r} declares no usable dtype and shape.") from None
        found[name] = (dtype, shape)
    return found


def from_bytes(data: bytes, *, extra: Mapping[str, type] | None = None) -> Tree:
    """Read a record from bytes that this party wrote itself, such as a checkpoint.

    For bytes of another party use :func:`receive`, which also knows what to expect.
    """
    arrays = _arrays(data)
    text = read_header(data, limit=1 << 30)[1]
    try:
        return _build(json.loads(text["outline"]), arrays, "", extra or {})
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ProtocolError(f"The outline of a message does not fit its leaves ({error!r}). It was rejected.") from None


def read_leaves(data: bytes, part: str) -> dict[str, Array]:
    """Read the arrays of one part of a file by name, whatever records they belonged to in the version that wrote it.

    Examples
    --------
    >>> from fedfactor.core.algorithm import Score
    >>> sorted(read_leaves(to_bytes({"score": Score.of(2.0, 3, 4.0)}), "score"))
    ['n', 'sse', 'total']
    """
    return {name.removeprefix(f"{part}."): leaf for name, leaf in _arrays(data).items() if name.startswith(f"{part}.")}


def _arrays(data: bytes) -> dict[str, Array]:
    _declared(read_header(data, limit=1 << 30)[0])
    try:
        return load(data)  # type: ignore[reportUnknownVariableType]
    except Exception as error:
        raise ProtocolError(f"The bytes are not a whole safetensors message: {error}") from None


def _build(outline: Any, arrays: Mapping[str, Array], path: str, extra: Mapping[str, type]) -> Tree:
    if outline == 0:
        return None
    if outline == 1:
        return arrays[path or "value"]
    tag, parts = outline
    built = {name: _build(part, arrays, f"{path}.{name}" if path else name, extra) for name, part in parts.items()}
    if not tag:
        return built
    cls = extra.get(tag) or known_type(tag)
    if cls is None:
        raise ProtocolError(
            f"The bytes hold a {tag!r}, which nothing here defines. Import the algorithm that wrote them."
        )
    return cls(**built)


def fingerprint_of(components: np.ndarray) -> str:
    """Name components by what they are: the SHA-256 of ``components.safetensors``, wherever that lies.

    Examples
    --------
    >>> fingerprint_of(np.eye(2))[:14]
    'sha256:e4a4f8e'
    """
    return f"sha256:{hashlib.sha256(save({'components': np.ascontiguousarray(components)})).hexdigest()}"


def receive(data: bytes, expected: Mapping[type, Spec]) -> Tree:
    """Read one message of another party, after checking it against what was announced.

    Parameters
    ----------
    data : bytes
        What arrived.
    expected : mapping of type to leaf specifications
        The messages that may come, from :meth:`Algorithm.messages`.
    """
    most = max(sum(leaf.nbytes for leaf in spec.values()) for spec in expected.values()) + HEADER_LIMIT
    if len(data) > most:
        raise ProtocolError(
            f"A message of {len(data)} bytes arrived where at most {most} can be right. It was rejected."
        )
    header, text = read_header(data)
    tags = {type_tag(cls): cls for cls in expected}
    tag = None
    try:
        tag = json.loads(text["outline"])[0]
        cls = tags[current_identifier(tag)]
    except (AttributeError, KeyError, ValueError, TypeError, IndexError, RecursionError):
        raise _unannounced(tag, expected) from None
    _check_declared(cls, _declared(header), expected[cls])
    message = from_bytes(data, extra=tags)
    check_message(message, expected)
    return message


def check_message(message: Tree, expected: Mapping[type, Spec], *, ask_card: bool = True) -> None:
    """Check a message that came without bytes (a simulation): type, names, dtypes, shapes, finite values.

    Without `ask_card` values that lie on a GPU are left to :func:`checksum`, which does not wait for them.
    """
    cls = kind_of(message)
    if cls not in expected:
        raise _unannounced(cls.__name__, expected)
    held = leaves(message)
    found = {path: (_dtype_name(leaf), leaf.shape if is_numpy(leaf) else tuple(np.shape(leaf))) for path, leaf in held}
    _check_declared(cls, found, expected[cls])
    for name, child in children(message):
        if name in expected[cls] and not is_numpy(child) and not is_leaf(child):
            raise ProtocolError(f"{cls.__name__}.{name} holds no array but parts of its own. The message was rejected.")
    check_finite(message, ask_card=ask_card)


def check_finite(message: Tree, *, ask_card: bool = True) -> None:
    """Check that a message holds neither NaN nor infinity."""
    cls = kind_of(message)
    held = leaves(message)
    on_card = [path for path, leaf in held if getattr(leaf, "is_cuda", False)]
    if ask_card and on_card:
        _check_finite_on_card(cls, message)
    for path, leaf in held:
        if path in on_card:
            continue
        if "float" in _dtype_name(leaf) and not _seems_finite(leaf) and not _all_finite(leaf):
            raise NotFiniteError(f"{cls.__name__}.{path} holds NaN or infinity. The message was rejected.")


def _unannounced(tag: Any, expected: Mapping[type, Spec]) -> ProtocolError:
    """Name what was sent, as far as that is a name: a peer may write anything."""
    name = str(tag).rpartition(":")[2].rpartition(".")[2]
    what = name if name.isidentifier() and len(name) <= 80 and tag is not None else "Something without a type"
    names = ", ".join(sorted(kind.__name__ for kind in expected))
    return ProtocolError(f"{what} was sent, but the algorithm announced only {names}. It was rejected.")


def _check_finite_on_card(cls: type, message: Tree) -> None:
    """Ask a GPU once for all leaves: every answer waits until all that was asked of it before is done."""
    total = checksum(message)
    if total is not None and not math.isfinite(float(total)):
        for path, leaf in leaves(message):
            if not _all_finite(leaf):
                raise NotFiniteError(f"{cls.__name__}.{path} holds NaN or infinity. The message was rejected.")


def checksum(message: Tree) -> Any:
    """Return the sum of all numbers that lie on a GPU, as a number there that is finite if they are; None without."""
    found = [leaf for _, leaf in leaves(message) if getattr(leaf, "is_cuda", False)]
    if not found:
        return None
    double = import_module("torch").float64
    sums = [leaf.sum(dtype=double) for leaf in found]
    return sums[0] if len(sums) == 1 else sum(sums[1:], sums[0])


def _seems_finite(leaf: Any) -> bool:
    """Return whether the squares of all numbers have a finite sum: a cheap test, which may overflow."""
    if is_numpy(leaf) and leaf.flags.c_contiguous:
        if leaf.ndim == 0:
            return math.isfinite(float(leaf))
        flat = leaf.reshape(-1)
        return math.isfinite(float(flat.dot(flat)))
    return math.isfinite(float(leaf.sum()))


def _all_finite(leaf: Any) -> bool:
    # The test above may overflow; this one is exact and seldom needed.
    return bool(np.isfinite(to_numpy(leaf)).all())


def _dtype_name(leaf: Any) -> str:
    dtype = getattr(leaf, "dtype", None)
    return _name_of(np.asarray(leaf).dtype if dtype is None else dtype)


@functools.cache
def _name_of(dtype: Any) -> str:
    return str(dtype).rsplit(".", 1)[-1]


def _check_declared(cls: type, found: Mapping[str, tuple[str, tuple[int, ...]]], spec: Spec) -> None:
    for path, (dtype, shape) in found.items():
        leaf = spec.get(path)
        if leaf is None:
            raise ProtocolError(f"{cls.__name__} carries a leaf {path!r} that was not announced. It was rejected.")
        if not leaf.admits(dtype, shape):
            raise ProtocolError(
                f"{cls.__name__}.{path} is {dtype}{list(shape)}, but {leaf.dtype}{list(leaf.shape)} was announced. "
                "The parties run different settings or versions, or the sender is hostile: the message was rejected."
            )
    missing = [path for path in spec if path not in found and not _may_be_absent(cls, path)]
    if missing:
        raise ProtocolError(f"{cls.__name__} lacks {', '.join(missing)}. The message was rejected.")


def _may_be_absent(cls: type, path: str) -> bool:
    return visibility(cls, path.split(".")[0]) == "telemetry"
