"""Records: frozen dataclasses whose leaves are arrays.

States and messages are such records, so that copying, summing, counting bytes and writing them down is each written
once, here and in :mod:`fedfactor.core.wire`. A leaf is an array (NumPy, torch, CuPy), or ``None`` when it is absent;
records and ``dict[str, leaf]`` nest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from operator import add
from typing import Any, TypeGuard, TypeVar, dataclass_transform, overload

import numpy as np

from fedfactor.core.former_identifiers import current_identifier

Array = Any
Tree = Any
T = TypeVar("T")

_TYPES: dict[str, type] = {}
_IDENTIFIERS: dict[type, str] = {}


@overload
def record(kind: type[T], /) -> type[T]: ...
@overload
def record(kind: str, /) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True)
def record(kind: type[T] | str, /) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class a frozen, slotted dataclass that messages and checkpoints can identify.

    Parameters
    ----------
    kind : type or str
        The class; or the identifier that bytes use for it, such as ``"pooled_nmf.Factor"``, which stays the same when
        the class moves to another module. Without one, bytes use the class's module and qualified name.

    Examples
    --------
    >>> @record("docs.Point")
    ... class Point:
    ...     x: np.ndarray
    >>> nbytes(Point(x=np.zeros(3))), type_tag(Point)
    (24, 'docs.Point')
    """
    if isinstance(kind, str):
        return functools.partial(_register, identifier=kind)
    return _register(kind, f"{kind.__module__}:{kind.__qualname__}")


def _register(cls: type[T], identifier: str) -> type[T]:
    made = dataclass(frozen=True, slots=True)(cls)
    _TYPES[identifier] = made
    _IDENTIFIERS[made] = identifier
    return made


def type_tag(cls: type) -> str:
    """Return the identifier of a record type in bytes."""
    return _IDENTIFIERS.get(cls) or f"{cls.__module__}:{cls.__qualname__}"


def known_type(tag: str) -> type | None:
    """Return the record type of an identifier, among those already defined: bytes never cause an import."""
    return _TYPES.get(current_identifier(tag))


def registered_identifiers() -> tuple[str, ...]:
    """Return the identifiers of all record types that are defined now."""
    return tuple(_TYPES)


def public(**kwargs: Any) -> Any:
    """Mark a field that is known without looking at the data, so that no channel needs to protect it."""
    return field(metadata={"visibility": "public"}, **kwargs)


def telemetry(**kwargs: Any) -> Any:
    """Mark a field that only watches the run, such as a loss: it is dropped as soon as noise protects an upload."""
    return field(metadata={"visibility": "telemetry"}, **kwargs)


def visibility(cls: type, name: str) -> str:
    """Return whether a field is ``"private"`` (the default), ``"public"`` or ``"telemetry"``."""
    return next(str(f.metadata.get("visibility", "private")) for f in fields(cls) if f.name == name)


def kind_of(node: object) -> type:
    """Return the type of a node."""
    return type(node)


def is_record(node: object) -> bool:
    """Distinguish a record instance from a leaf."""
    return _names(kind_of(node)) is not None


@functools.cache
def _names(kind: type) -> tuple[str, ...] | None:
    """List the fields of a record by its type, which is asked for many times a round; None for other types."""
    return tuple(f.name for f in fields(kind)) if is_dataclass(kind) else None


def children(node: Tree) -> list[tuple[str, Tree]]:
    """List the named parts of a record or a dict, in a fixed order."""
    names = _names(kind_of(node))
    return sorted(node.items()) if names is None else [(name, getattr(node, name)) for name in names]


def is_leaf(node: Tree) -> bool:
    """Return whether a node has no parts of its own."""
    return not (is_record(node) or isinstance(node, dict))


def leaves(node: Tree, prefix: str = "") -> list[tuple[str, Array]]:
    """List ``(path, array)`` for every leaf that is present; paths join names with dots."""
    found: list[tuple[str, Array]] = []
    _collect(node, prefix, found)
    return found


def _collect(node: Tree, prefix: str, found: list[tuple[str, Array]]) -> None:
    if is_leaf(node):
        if node is not None:
            found.append((prefix, node))
        return
    for name, child in children(node):
        if child is None:
            continue
        path = f"{prefix}.{name}" if prefix else name
        if is_numpy(child):  # nearly all are, and this is asked several times for every message
            found.append((path, child))
        else:
            _collect(child, path, found)


@overload
def tree_map(fn: Callable[[Array], Array], first: T, /) -> T: ...
@overload
def tree_map(fn: Callable[[Array, Array], Array], first: T, second: T, /) -> T: ...
def tree_map(fn: Callable[..., Array], first: T, *rest: T) -> T:
    """Apply ``fn`` leaf by leaf to trees of one shape; a leaf absent in any of them is absent in the result."""
    if first is None or any(other is None for other in rest):
        return None  # type: ignore[reportReturnType]
    if is_numpy(first) or is_leaf(first):
        return fn(first, *rest)
    parts = {name: tree_map(fn, child, *(_part(other, name) for other in rest)) for name, child in children(first)}
    return _rebuild(first, parts)


def _rebuild(node: Any, parts: dict[str, Any]) -> Any:
    return kind_of(node)(**parts) if is_record(node) else parts


def _part(node: Tree, name: str) -> Tree:
    return getattr(node, name) if is_record(node) else node[name]


def tree_sum(trees: Iterable[T]) -> T:
    """Add trees leaf by leaf, from left to right: the order is part of the result, to the last bit."""
    iterator = iter(trees)
    total = next(iterator)
    for place, tree in enumerate(iterator):
        total = tree_map(add, total, tree) if place == 0 else add_up(total, tree)  # the first sum is no other party's
    return total


def add_up(total: T, tree: T) -> T:
    """Add a tree to a sum: in place where the sum may be written to, as one that was frozen before may not.

    Examples
    --------
    >>> first = freeze({"x": np.ones(2)})
    >>> total = add_up(first, {"x": np.ones(2)})
    >>> add_up(total, {"x": np.ones(2)})["x"] is total["x"], first["x"]
    (True, array([1., 1.]))
    """
    names = _names(kind_of(total))
    if names is None or kind_of(tree) is not kind_of(total):
        return tree_map(_add_up, total, tree)
    # A record of arrays, as nearly every message is, is added to without being made again for each.
    changed = {}
    for name in names:
        before = getattr(total, name)
        leaf = getattr(tree, name)
        after = _add_up(before, leaf) if is_numpy(before) and is_numpy(leaf) else tree_map(_add_up, before, leaf)
        if after is not before:
            changed[name] = after
    return replace(total, **changed) if changed else total  # type: ignore[reportArgumentType]


def _add_up(total: Array, leaf: Array) -> Array:
    whole = is_numpy(total) and is_numpy(leaf)
    if whole and total.flags.writeable and total.shape == leaf.shape and total.dtype == leaf.dtype:
        return np.add(total, leaf, out=total)
    total = total + leaf
    return np.asarray(total) if whole else total  # a sum of two arrays without dimensions is none


def freeze(node: T) -> T:
    """Make every leaf a read-only, C-contiguous array, so that no client changes what another client holds.

    What is frozen already is returned as it is: messages are frozen where they are made, and where they arrive.
    """
    if node is None:
        return node
    if is_leaf(node):
        return _freeze_leaf(node)
    held = children(node)
    parts = {name: _freeze_leaf(child) if is_numpy(child) else freeze(child) for name, child in held}
    return node if all(parts[name] is child for name, child in held) else _rebuild(node, parts)


def _freeze_leaf(leaf: Array) -> Array:
    if isinstance(leaf, (np.generic, int, float, bool)):
        leaf = np.asarray(leaf)
    elif not is_numpy(leaf):
        return leaf  # torch and CuPy arrays have no read-only flag
    if leaf.flags.c_contiguous and not leaf.flags.writeable:
        return leaf
    frozen: Any = np.asarray(leaf, order="C").view()
    frozen.flags.writeable = False
    return frozen


def is_numpy(leaf: object) -> TypeGuard[np.ndarray]:
    """Distinguish a NumPy array from those of other libraries."""
    return isinstance(leaf, np.ndarray)


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Return a mapping, such as uploads by client or a part of a JSON file."""
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """Return a list or a tuple."""
    return isinstance(value, (list, tuple))


def to_numpy(leaf: Array) -> np.ndarray:
    """Copy a leaf to host memory as a C-contiguous NumPy array (0-d stays 0-d)."""
    if hasattr(leaf, "detach"):
        leaf = leaf.detach().cpu().numpy()
    elif hasattr(leaf, "get") and not is_numpy(leaf):
        leaf = leaf.get()
    return np.asarray(leaf, order="C")


def nbytes(node: Tree) -> int:
    """Count the bytes of all leaves: what a message weighs on any wire, less a header of a few hundred bytes."""
    held = [leaf for _, leaf in leaves(node)]
    return sum([leaf.nbytes if is_numpy(leaf) else math.prod(np.shape(leaf)) * _itemsize(leaf) for leaf in held])


def _itemsize(leaf: Array) -> int:
    dtype = getattr(leaf, "dtype", None)
    return int(getattr(dtype, "itemsize", None) or np.asarray(leaf).itemsize)
