"""Arrays of a message in half precision (float16 with one scale each), to save bytes on the network."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedfactor.core.errors import ProtocolError
from fedfactor.core.pytree import Tree, leaves, to_numpy, tree_map
from fedfactor.core.wire import Leaf, Spec


def narrow(message: Tree) -> tuple[Tree, tuple[float, ...]]:
    """Write arrays as float16, each divided by its largest magnitude; single numbers stay as they are."""
    scales: list[float] = []

    def half(leaf: Any) -> Any:
        array = to_numpy(leaf)
        if array.dtype.kind != "f" or array.ndim == 0:
            return leaf
        scale = float(np.abs(array).max(initial=0.0)) or 1.0
        scales.append(scale)
        return (array / scale).astype(np.float16)

    return tree_map(half, message), tuple(scales)


def widen(message: Tree, scales: tuple[float, ...], spec: Spec) -> Tree:
    """Undo :func:`narrow`, up to the rounding to float16."""
    paths = [path for path, leaf in leaves(message) if to_numpy(leaf).dtype == np.float16]
    if len(paths) != len(scales):
        raise ProtocolError(f"A message has {len(scales)} scales for {len(paths)} arrays. It was rejected.")
    each = iter(zip(paths, scales, strict=True))

    def full(leaf: Any) -> Any:
        if to_numpy(leaf).dtype != np.float16:
            return leaf
        path, scale = next(each)
        wide = leaf.astype(spec[path].dtype) * np.asarray(scale, spec[path].dtype)
        if not np.isfinite(wide).all():
            raise ProtocolError(f"The scale of {path} makes its values infinite. The message was rejected.")
        return wide

    return tree_map(full, message)


def halved(spec: Spec) -> Spec:
    """Describe the message whose arrays were narrowed."""
    return {
        path: Leaf("float16", leaf.shape, leaf.exact) if leaf.dtype.startswith("float") and leaf.shape else leaf
        for path, leaf in spec.items()
    }
