"""An upload laid out flat, with what is private kept apart from what is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import numpy as np

from fedfactor.core.errors import IncompatibleError
from fedfactor.core.pytree import Tree, kind_of, leaves, to_numpy, visibility

__all__ = ["Layout", "Parcel", "flatten", "restore"]


@dataclass(frozen=True, slots=True)
class Parcel:
    """One upload, or a sum of them, on its way.

    ``values`` are all private numbers end to end: floats, or integers that count in units of ``grid``. ``side`` are
    single numbers that need no noise: public ones, and telemetry where nothing adds noise.
    """

    values: np.ndarray
    side: tuple[float, ...]
    grid: float | None = None

    @property
    def floats(self) -> np.ndarray:
        """The values as numbers."""
        return self.values if self.grid is None else self.values * self.grid

    @property
    def nbytes(self) -> int:
        """Bytes that it takes on its way."""
        return self.values.nbytes + 8 * len(self.side)

    def tree(self) -> dict[str, Any]:
        """Lay it out as arrays, to be kept as it is: noise in it is never drawn again."""
        tree: dict[str, Any] = {"values": self.values, "side": np.array(self.side, np.float64)}
        return tree if self.grid is None else {**tree, "grid": np.float64(self.grid)}

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Parcel:
        """Read what :meth:`tree` laid out."""
        grid = tree.get("grid")
        return cls(tree["values"], tuple(tree["side"].tolist()), None if grid is None else float(grid))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the leaves of one kind of upload lie in a parcel."""

    like: Any
    private: tuple[str, ...]
    side: tuple[str, ...]


def flatten(up: Tree, *, noisy: bool) -> tuple[Parcel, Layout]:
    """Lay out an upload; telemetry is left out when noise is to protect the rest, since one exact loss voids it.

    Examples
    --------
    >>> from fedfactor.core.algorithm import Score
    >>> flatten(Score.of(2.0, 3, 4.0), noisy=False)[0].side
    (2.0, 3.0, 4.0)
    """
    if noisy:
        gone: list[str] = [f.name for f in fields(up) if visibility(kind_of(up), f.name) == "telemetry"]
        up = replace(up, **dict[str, Any].fromkeys(gone))
    private: list[tuple[str, np.ndarray]] = []
    side: list[tuple[str, np.ndarray]] = []
    for path, leaf in leaves(up):
        shown = visibility(kind_of(up), path.split(".")[0])
        if np.shape(leaf) != () and shown != "private" and noisy:
            raise IncompatibleError(
                f"{type(up).__name__}.{path} is an array that is not private, beside leaves that need noise. Mark "
                "single numbers only as public() in uploads."
            )
        alone = np.shape(leaf) == () and (shown != "private" or not noisy)
        (side if alone else private).append((path, to_numpy(leaf)))
    values = np.concatenate([leaf.ravel().astype(np.float64) for _, leaf in private]) if private else np.zeros(0)
    parcel = Parcel(values, tuple(float(leaf) for _, leaf in side))
    return parcel, Layout(up, tuple(path for path, _ in private), tuple(path for path, _ in side))


def restore(parcel: Parcel, layout: Layout) -> Tree:
    """Cut a parcel into an upload of the given layout."""
    flat = parcel.floats
    position = 0
    parts = dict(zip(layout.side, parcel.side, strict=True))
    found: dict[str, np.ndarray] = {}
    for path, leaf in leaves(layout.like):
        kind = to_numpy(leaf).dtype
        if path in parts:
            found[path] = np.asarray(parts[path]).astype(kind)
            continue
        size = int(np.prod(np.shape(leaf), dtype=np.int64))
        piece = flat[position : position + size].reshape(np.shape(leaf))
        found[path] = (np.rint(piece) if kind.kind in "iu" else piece).astype(kind)
        position += size
    return _rebuild(layout.like, found, "")


def _rebuild(node: Any, found: dict[str, np.ndarray], path: str) -> Any:
    if node is None:
        return None
    if isinstance(node, dict):
        held = cast(dict[str, Any], node)
        return {name: _rebuild(child, found, f"{path}.{name}" if path else name) for name, child in held.items()}
    if path in found:
        return found[path]
    parts = {
        f.name: _rebuild(getattr(node, f.name), found, f"{path}.{f.name}" if path else f.name) for f in fields(node)
    }
    return replace(node, **parts)
