"""What only a CUDA GPU does: rows that arrive while it works, and numbers that are read without waiting for them."""

# torch is looked up by name, and late: most runs need none of it.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from fedfactor.core.pytree import leaves, tree_map

__all__ = ["Glance", "overlapped"]


def overlapped(rows: Any, bounds: Sequence[tuple[int, int]], device: Any, dtype: Any) -> Iterator[tuple[int, int, Any]]:
    """Yield ``(start, stop, rows on the GPU)``; the next block is copied while the GPU works on this one."""
    torch: Any = import_module("torch")
    side, here = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    shape = (bounds[0][1], rows.shape[1])
    # Two of each: one is read while the other is written.
    host = [torch.empty(shape, dtype=dtype, pin_memory=True) for _ in range(2)]
    card = [torch.empty(shape, dtype=dtype, device=device) for _ in range(2)]
    sent: list[Any] = [None, None]
    used: list[Any] = [None, None]

    def send(place: int) -> None:
        a, b = bounds[place]
        which = place % 2
        if sent[which] is not None:
            sent[which].synchronize()  # the host's copy may be written once it has been sent
        host[which][: b - a].copy_(torch.from_numpy(np.array(rows[a:b], order="C")))
        with torch.cuda.stream(side):
            if used[which] is not None:
                side.wait_event(used[which])
            card[which][: b - a].copy_(host[which][: b - a], non_blocking=True)
            sent[which] = side.record_event()

    side.wait_stream(here)
    send(0)
    for place, (a, b) in enumerate(bounds):
        here.wait_event(sent[place % 2])
        yield a, b, card[place % 2][: b - a]
        used[place % 2] = here.record_event()
        if place + 1 < len(bounds):
            send(place + 1)
    side.synchronize()
    here.synchronize()  # before the copies are let go


class Glance:
    """Numbers of a tree that lie on a GPU, on their way to main memory while the GPU goes on with other work.

    Parameters
    ----------
    tree : Tree
        Its leaves without dimensions are copied, those on a GPU; all others stay what they are.
    """

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        found = [leaf for _, leaf in leaves(tree) if _single(leaf)]
        self._copy: Any = None
        if found:
            torch: Any = import_module("torch")
            self._copy = torch.stack([leaf.double() for leaf in found]).to("cpu", non_blocking=True)
            self._there = torch.cuda.current_stream(found[0].device).record_event()

    def read(self) -> Any:
        """Wait for the copies, and return the tree with them in place."""
        if self._copy is None:
            return self._tree
        self._there.synchronize()
        numbers = iter(self._copy.tolist())

        def told(leaf: Any) -> Any:
            return np.float64(next(numbers)) if _single(leaf) else leaf

        return tree_map(told, self._tree)


def _single(leaf: Any) -> bool:
    return bool(getattr(leaf, "is_cuda", False)) and len(leaf.shape) == 0
