"""Rows for a CUDA GPU: moved there in blocks, in full or half the bytes, or sent block by block in every pass."""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.errors import DataError, IncompatibleError, MissingExtraError
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.pytree import to_numpy, tree_map
from fedfactor.core.run import Run
from fedfactor.linalg.cuda.transfers import overlapped

__all__ = ["STORAGES", "Storage", "Streamed", "check_device", "home", "move"]

Storage = Literal["float64", "float32", "bfloat16"]
STORAGES = ("float64", "float32", "bfloat16")

_BLOCK = 1 << 28
"""Bytes that go over to the GPU at a time."""

_ROOM = 0.7
"""Share of the GPU's free memory that rows may fill; factors, sums and copies of blocks need the rest."""


class Streamed:
    """Rows in memory or in a file of which a GPU sees one block at a time, the next one on its way meanwhile.

    It can be multiplied with, nothing else: for methods that touch rows by products alone.

    Parameters
    ----------
    rows : ndarray or CSR matrix
        Where they are kept; a memory map stays one.
    device : torch.device
    block : int, optional
        Bytes of a block.
    """

    layout = "streamed"
    ndim = 2
    library = "torch"

    def __init__(self, rows: Any, device: Any, block: int = _BLOCK) -> None:
        self.rows = rows
        self.device = device
        self.shape = tuple(rows.shape)
        self.dtype = import_module("torch").float32
        self.is_cuda = device.type == "cuda"
        cells = _cells(rows) / max(1, rows.shape[0])
        self.step = max(1, int(block / max(1.0, 4 * cells)))

    def blocks(self) -> Iterator[tuple[int, int, Any]]:
        """Yield ``(start, stop, rows on the GPU)``; the next block is copied while the GPU works on this one."""
        bounds = [(a, min(a + self.step, self.shape[0])) for a in range(0, self.shape[0], self.step)]
        if is_sparse(self.rows) or not self.is_cuda:
            for a, b in bounds:
                yield a, b, _tensor(self.rows[a:b], self.device, self.dtype)
            return
        yield from overlapped(self.rows, bounds, self.device, self.dtype)


def check_device(device: str | None, storage: str | None = None) -> None:
    """Refuse a device that cannot be used here, and words that do not go together, before any work.

    Examples
    --------
    >>> check_device("cpu")
    >>> check_device("cpu", "bfloat16")
    Traceback (most recent call last):
    ValueError: storage='bfloat16' is for rows on a GPU, but device is 'cpu'. Use device='cuda', or leave it out.
    """
    if device is not None and not isinstance(device, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"device={device!r} is not known. Use 'cpu' or 'cuda' ('cuda:1' for the second GPU).")
    if storage is not None and storage not in STORAGES:
        raise ValueError(f"storage={storage!r} is not known. Use one of {', '.join(STORAGES)}.")
    if device is None or device == "cpu":
        if storage is not None:
            raise ValueError(
                f"storage={storage!r} is for rows on a GPU, but device is {device!r}. Use device='cuda', or "
                "leave it out."
            )
        return
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number.isdigit() or device == "cuda"):
        raise ValueError(f"device={device!r} is not known. Use 'cpu' or 'cuda' ('cuda:1' for the second GPU).")
    try:
        torch: Any = import_module("torch")
    except ImportError as error:
        raise MissingExtraError.named("torch", "deep", f"device={device!r}") from error
    if not torch.cuda.is_available():
        why = "it was built without CUDA" if torch.version.cuda is None else "no GPU, or no driver for it, is there"
        raise ValueError(
            f"device={device!r} needs a CUDA GPU, but torch {torch.__version__} finds none: {why}. Use device='cpu', "
            "or a machine with a GPU and the build of torch for it."
        )
    if int(number or 0) >= torch.cuda.device_count():
        raise ValueError(f"device={device!r}: there are {torch.cuda.device_count()} GPUs here, numbered from 0.")


def move(federation: Federation, algorithm: Algorithm, device: str | None, storage: str | None = None) -> Federation:
    """Return the federation with its rows where a run shall work on them; the same one where they are there already.

    Parameters
    ----------
    federation : Federation
    algorithm : Algorithm
        Asked whether it takes tensors, and whether it can do with half the bytes or with one block at a time.
    device : {"cpu", "cuda"} or None
        None: where the rows are.
    storage : {"float64", "float32", "bfloat16"}, optional
        How a GPU keeps rows; single precision by default.

    Returns
    -------
    Federation
        Rows go over in blocks. Where those of a client do not fit on the GPU beside those of the clients before it,
        they stay where they are, as :class:`Streamed`.
    """
    check_device(device, storage)
    if device is None:
        return federation
    name = type(algorithm).__name__
    if device == "cpu":
        shards = {owner: federation.shard(owner) for owner in federation.names}
        if not any(getattr(shard.X, "is_cuda", False) for shard in shards.values()):
            return federation
        return _like(federation, {owner: _fetched(shard) for owner, shard in shards.items()})
    if not algorithm.handles_tensors:
        raise IncompatibleError(f"{name} works on the processor only. Leave device={device!r} out.")
    storage = storage or "float32"
    if storage == "bfloat16" and not takes_half(algorithm):
        raise IncompatibleError(
            f"storage='bfloat16' is for methods that touch rows by products alone (PooledNMF with squared loss and no "
            f"components of the owners' own), and {name} with these settings is not one. Use storage='float32'."
        )
    torch: Any = import_module("torch")
    target = torch.device(device)
    return placed(federation, algorithm, target, storage, _ROOM * torch.cuda.mem_get_info(target)[0])


@runtime_checkable
class HandlesHalf(Protocol):
    """Touches rows by products alone, with some of its settings."""

    @property
    def handles_half(self) -> bool:
        """Return whether rows may be of half precision, or come block by block."""
        ...


def takes_half(algorithm: Algorithm) -> bool:
    """Return whether an algorithm takes rows of half precision, or block by block."""
    return isinstance(algorithm, HandlesHalf) and algorithm.handles_half


def placed(federation: Federation, algorithm: Algorithm, target: Any, storage: str, room: float) -> Federation:
    """Bring rows to a device as far as there is room for them (in bytes), and stream the rest."""
    torch: Any = import_module("torch")
    shards: dict[str, Shard] = {}
    for owner in federation.names:
        shard = federation.shard(owner)
        if isinstance(shard.mask, str) or (shard.mask is not None and is_sparse(shard.X)):
            raise IncompatibleError(
                f"Owner {owner!r} has sparse rows with missing cells, which only the processor works on. Leave the "
                "device out."
            )
        real = torch.float32 if is_sparse(shard.X) and storage == "bfloat16" else getattr(torch, storage)
        each = real.itemsize + (8 if is_sparse(shard.X) else 0) + (1 if shard.mask is not None else 0)
        need = _cells(shard.X) * each
        if need <= room:
            room -= need
            shards[owner] = _moved(shard, target, real, owner)
            continue
        if not takes_half(algorithm) or shard.mask is not None or hasattr(shard.X, "detach"):
            raise DataError(
                f"Owner {owner!r} has rows of {need / 1e9:.3g} GB, but the GPU has room for {max(room, 0) / 1e9:.3g} "
                f"GB, and {type(algorithm).__name__} with these settings and rows needs all of them there. Use more "
                "GPUs or device='cpu', or PooledNMF on complete rows, which takes one block at a time."
            )
        shards[owner] = replace(shard, X=Streamed(shard.X, target))
    return _like(federation, shards)


def home(result: Run, federation: Federation) -> Run:
    """Bring the factors of a run to where the rows of a federation lie, and to their library."""
    first = federation.shard(federation.names[0]).X
    if not hasattr(first, "detach"):
        back = to_numpy
    else:

        def back(leaf: Any) -> Any:
            return leaf.to(first.device) if hasattr(leaf, "detach") else leaf

    return replace(
        result,
        factors={name: tree_map(back, kept) for name, kept in result.factors.items()},
        down=tree_map(back, result.down),
    )


def _like(federation: Federation, shards: dict[str, Shard]) -> Federation:
    made = Federation(shards, missing_values=federation.missing_values)
    made.preprocess = federation.preprocess
    return made


def _fetched(shard: Shard) -> Shard:
    def back(part: Any) -> Any:
        return part.cpu() if getattr(part, "is_cuda", False) else part

    X = shard.X.rows if isinstance(shard.X, Streamed) else back(shard.X)
    return replace(shard, X=X, mask=back(shard.mask), holdout=back(shard.holdout), lost=0.0)


def _cells(rows: Any) -> int:
    return int(rows.nnz) if is_sparse(rows) else math.prod(rows.shape)


def _moved(shard: Shard, target: Any, real: Any, owner: str) -> Shard:
    torch: Any = import_module("torch")
    mask = None if shard.mask is None else torch.as_tensor(_plain(shard.mask), device=target)
    held: Any = shard.holdout
    if held is not None and not is_sparse(held):
        held = torch.as_tensor(_plain(held), device=target)
    rows = shard.X
    lost = 0.0
    if is_sparse(rows) or "sparse" in str(getattr(rows, "layout", "")):
        return replace(shard, X=_tensor(rows, target, real), mask=mask, holdout=held)
    X = torch.empty(tuple(rows.shape), dtype=real, device=target)
    draw = torch.Generator(device=target).manual_seed(zlib.crc32(owner.encode()))
    step = max(1, _BLOCK // max(1, 8 * rows.shape[1]))
    for a in range(0, rows.shape[0], step):
        if real != torch.bfloat16:
            X[a : a + step] = _tensor(rows[a : a + step], target, real)
            continue
        block = _tensor(rows[a : a + step], target, torch.float32)
        X[a : a + step] = rounded(block, draw)
        lost += float(((X[a : a + step].double() - block.double()) ** 2).sum())
    return replace(shard, X=X, mask=mask, holdout=held, lost=lost)


def rounded(block: Any, draw: Any) -> Any:
    """Round single precision to bfloat16, up or down by chance, so that what is lost is zero on average.

    Then the squared error of the stored rows is that of the true ones plus ``‖lost‖²``, whatever the factors; rounding
    to the nearest has no such rule. Zeros, and numbers of up to eight binary digits, stay as they are.
    """
    torch: Any = import_module("torch")
    chance = torch.randint(1 << 16, block.shape, dtype=torch.int32, device=block.device, generator=draw)
    bits = block.contiguous().view(torch.int32) + chance
    return (bits & -(1 << 16)).view(torch.float32).to(torch.bfloat16)


def _tensor(rows: Any, target: Any, real: Any) -> Any:
    torch: Any = import_module("torch")
    if is_sparse(rows):
        csr = rows.tocsr()
        parts = (np.asarray(csr.indptr, np.int64), np.asarray(csr.indices, np.int64), _copied(csr.data))
        starts, places, data = (torch.from_numpy(part).to(target) for part in parts)
        with warnings.catch_warnings():  # of torch's own, about a layout that is not chosen here
            warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
            return torch.sparse_csr_tensor(starts, places, data.to(real), tuple(csr.shape))
    return rows.to(target, real) if hasattr(rows, "detach") else torch.from_numpy(_copied(rows)).to(target, real)


def _plain(part: Any) -> Any:
    return part if hasattr(part, "detach") else _copied(part)


def _copied(rows: Any) -> np.ndarray:
    """Return an array that torch may share: its own memory, in order, and writable."""
    return np.array(rows, order="C")
