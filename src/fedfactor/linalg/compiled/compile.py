"""Compiled versions of :mod:`fedfactor.linalg.compiled.nmf_loops`, built on first use.

numba is imported late and may be absent, or be turned off with ``FEDFACTOR_NUMBA=0``; callers then take their NumPy
path. Each loop is compiled for one element type and one index type with the widest array types (any strides,
read-only), so that slices, transposes and read-only inputs do not each cost a compilation.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.linalg.compiled import boolean_loops as loops_boolean
from fedfactor.linalg.compiled import boolean_search_loops as loops_search
from fedfactor.linalg.compiled import fold_components_loops as loops_folding
from fedfactor.linalg.compiled import kullback_leibler_loops as loops_counts
from fedfactor.linalg.compiled import nmf_loops as loops
from fedfactor.linalg.compiled import rating_loops as loops_ratings
from fedfactor.linalg.compiled import single_pass_loops as loops_one_pass

__all__ = ["aligned", "kernel", "load_numba", "scratch"]

_INT32 = np.dtype(np.int32)
_lock = threading.Lock()
_held = threading.local()
_built: dict[tuple[str, str, str], Callable[..., Any]] = {}

# Letters: r/w read-only/written matrix of reals with any strides, R/W the same but C-contiguous, d read-only vector of
# reals, D the same but written, i read-only vector of indices, n integer, s scalar real, t scalar real of double
# precision. Whatever the real type: p/P read-only/written matrix of 64-bit words, b/B the same of bytes, z/I/E written
# vector of int64/int32/doubles, Z/Q written matrix of int64/doubles. T: four-way read-only C-contiguous array of reals.
# Second field: "contract" only allows fused multiply-add, which keeps every lane alike; "fast" may also reorder sums.
_PLANS = {
    "ahead": ("RRsWWWnn", "contract"),
    "fold_columns": ("RRRWWn", "contract"),
    "gather": ("iidRnnW", "contract"),
    "rounded": ("QWnn", "contract"),
    "scatter": ("iidRnnW", "contract"),
    "squares": ("dnn", "fast"),
    "solve_rows_stored": ("iidRRnnnssRdW", "fast"),
    "stored_sums": ("iidRRnnWW", "fast"),
    **loops_boolean.PLANS,
    **loops_search.PLANS,
    **loops_ratings.PLANS,
    **loops_counts.PLANS,
    **loops_one_pass.PLANS,
    **loops_folding.PLANS,
}


@functools.cache
def load_numba() -> Any | None:
    """Return the numba module, or None when it is not installed or is switched off."""
    if os.environ.get("FEDFACTOR_NUMBA", "1") == "0":
        return None
    try:
        import numba
    except ImportError:
        return None
    return numba


def kernel(name: str, real: np.dtype, index: np.dtype = _INT32) -> Callable[..., Any] | None:
    """Return the compiled loop `name` for these types, or None when there is none (no numba, or not float32/float64).

    Examples
    --------
    >>> import numpy as np
    >>> kernel("gather", np.dtype("int64")) is None
    True
    """
    numba = load_numba()
    if numba is None or real.char not in "fd":
        return None
    key = (name, real.char, "q" if index.itemsize == 8 else "i")
    built = _built.get(key)
    if built is None:
        with _lock:
            built = _built.get(key) or _built.setdefault(key, _build(numba, *key))
    return built


def aligned(shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
    """Return zeros that begin where a vector register does: loads across its bounds take twice as long.

    Examples
    --------
    >>> aligned((2, 3), np.dtype("f4")).ctypes.data % 64
    0
    """
    size = math.prod(shape) * kind.itemsize
    raw = np.zeros(size + 64, np.uint8)
    skip = -raw.__array_interface__["data"][0] % 64
    return raw[skip : skip + size].view(kind).reshape(shape)


def scratch(name: str, shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
    """Return memory for a loop to work in, the same one again for every part that a thread takes: with what was left.

    Examples
    --------
    >>> scratch("example", (2, 3), np.dtype("f4")) is scratch("example", (2, 3), np.dtype("f4"))
    True
    """
    held = _held.__dict__
    found = held.get(name)
    if found is None or found.shape != shape or found.dtype != kind:
        found = held[name] = aligned(shape, kind)
    return found


def _build(numba: Any, name: str, real: str, index: str) -> Callable[..., Any]:
    types = numba.types
    number = types.float32 if real == "f" else types.float64
    whole = types.int64 if index == "q" else types.int32
    letters = {
        "r": types.Array(number, 2, "A", readonly=True),
        "w": types.Array(number, 2, "A"),
        "R": types.Array(number, 2, "C", readonly=True),
        "W": types.Array(number, 2, "C"),
        "d": types.Array(number, 1, "C", readonly=True),
        "D": types.Array(number, 1, "C"),
        "i": types.Array(whole, 1, "C", readonly=True),
        "n": types.int64,
        "s": number,
        "t": types.float64,
        "p": types.Array(types.uint64, 2, "C", readonly=True),
        "P": types.Array(types.uint64, 2, "C"),
        "b": types.Array(types.uint8, 2, "C", readonly=True),
        "B": types.Array(types.uint8, 2, "C"),
        "z": types.Array(types.int64, 1, "C"),
        "I": types.Array(types.int32, 1, "C"),
        "Z": types.Array(types.int64, 2, "C"),
        "E": types.Array(types.float64, 1, "C"),
        "Q": types.Array(types.float64, 2, "C"),
        "T": types.Array(number, 4, "C", readonly=True),
    }
    loops_boolean.prepare(numba)
    loops_search.prepare(numba)
    loops_one_pass.prepare(numba)
    loops_folding.prepare(numba)
    plan, freedom = _PLANS[name]
    fastmath = {"contract"} if freedom == "contract" else {"contract", "reassoc", "nsz"}
    # Not parallel=True: numba's threading layers are not safe under concurrent Python threads. Blocks of rows run on
    # our own pool instead, with the GIL released.
    signature = tuple(letters[letter] for letter in plan)
    loop = getattr(_room(name), name)
    built = numba.njit(nogil=True, fastmath=fastmath)(loop)
    try:
        _keep_compiled(built)
        built.compile(signature)
    except (RuntimeError, OSError):
        # No folder can be written to, as in a container: then each process compiles again. Any other cause comes again.
        built = numba.njit(nogil=True, fastmath=fastmath)(loop)
        built.compile(signature)
    built.disable_compile()
    return built


def _keep_compiled(built: Any) -> None:
    """Keep a loop's machine code in a file, for as long as none of the loops is written otherwise.

    numba looks at the loop's own file only. What that takes from other files is in the machine code too, and would stay
    there as it was when they are changed, as by an update.
    """
    built.enable_caching()
    with contextlib.suppress(AttributeError):  # names that numba may change: it then looks at one file, as it does
        kept = built._cache._cache_file
        kept._source_stamp = (kept._source_stamp, _digest_of_loops())


@functools.cache
def _digest_of_loops() -> str:
    """Return a digest of the text of all loops."""
    digest = hashlib.sha256()
    for path in sorted(Path(loops.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _room(name: str) -> Any:
    """Return the module that a loop is written in."""
    rooms = (loops_boolean, loops_search, loops_ratings, loops_counts, loops_one_pass, loops_folding)
    return next((room for room in rooms if name in room.PLANS), loops)
