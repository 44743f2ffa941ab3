"""How many threads the library may use, and how row blocks are spread over them.

Work is cut into blocks, and a free thread takes the next one. The blocks that :func:`for_blocks` hands out depend on
the problem only, so what is computed block by block has the same bits on any number of threads. BLAS gives no such
promise, and its threads wait for each other, which on a busy machine costs tenfold: under a cap it works on one thread,
block by block like everything else. The number of threads is never above what the process was given (cores, quota,
environment) unless more are asked for, by :func:`limit_threads` or an engine's `workers`.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["for_blocks", "in_order", "limit_threads", "thread_limit", "usable_cores"]

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that limit the threads of a process: set by users, job queues and other libraries."""

T = TypeVar("T")

_lock = threading.RLock()
_caps: list[list[int]] = []  # those in force, the latest last; lists, because only identity distinguishes equal caps
_before: dict[str, int] = {}  # what each threaded library had before it was first capped
_now: dict[str, int] = {}  # the last value set for each
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_inside = threading.local()
_controller: Any = None
_modules = -1  # how many were loaded when libraries were last looked for


def usable_cores() -> int:
    """Return how many threads this process was given: its cores, its quota, or the limit in the environment, if less.

    Examples
    --------
    >>> usable_cores() >= 1
    True
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    return int(max(1, min(cores, _quota(), *map(_asked, VARIABLES))))


def _asked(variable: str) -> float:
    """Return the number in an environment variable (of a list, as OpenMP allows, the first), infinity without one."""
    first = os.environ.get(variable, "").split(",")[0].strip()
    return int(first) if first.isdigit() and int(first) > 0 else math.inf


@functools.cache
def _quota(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """Return the share of processor time that a container was given, in whole cores (rounded up), else infinity.

    Groups lie within each other, and the tightest one holds. Version 2 writes ``cpu.max``, version 1 two files.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return math.inf
    least = math.inf
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / controllers if controllers else root
        base = base if base.is_dir() else root / "cpu"
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts) + 1):
            least = min(least, _quota_of(base.joinpath(*parts[:depth])))
    return least


def _quota_of(group: Path) -> float:
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()[:2]
        else:
            quota, period = ((group / f"cpu.cfs_{what}_us").read_text().strip() for what in ("quota", "period"))
        return math.ceil(int(quota) / int(period)) if quota != "max" and int(quota) > 0 else math.inf
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf


def thread_limit() -> int:
    """Return how many threads may work at once: the innermost :func:`limit_threads`, else the usable cores.

    Examples
    --------
    >>> with limit_threads(1):
    ...     thread_limit()
    1
    """
    try:
        return _caps[-1][0]
    except IndexError:
        return usable_cores()


@contextmanager
def limit_threads(n: int | None) -> Generator[None]:
    """Work on at most `n` threads for the duration, in the whole process; BLAS on one in each of them.

    Parameters
    ----------
    n : int or None
        At least 1; None changes nothing.

    Notes
    -----
    The cap is process-wide, so enter it where work starts (an engine does), not inside concurrent workers. Contexts may
    be nested, and may overlap in different threads: the one entered last holds, and when the last one is left, whatever
    the order, everything is as it was. Entering a cap that is already in force costs next to nothing.

    Examples
    --------
    >>> with limit_threads(2), limit_threads(1):
    ...     thread_limit()
    1
    """
    if n is not None and (n != int(n) or n < 1):
        raise ValueError(
            f"limit_threads needs a whole number of at least 1, got {n!r}. Pass None to leave the cap as it is."
        )
    if n is None:
        yield
        return
    cap = [int(n)]
    _enter(cap)
    try:
        yield
    finally:
        _leave(cap)


def _enter(cap: list[int]) -> None:
    with _lock:
        if _look() or not _caps or _caps[-1] != cap:
            _cap_libraries(cap[0])
        _caps.append(cap)


def _leave(cap: list[int]) -> None:
    with _lock:
        held = _caps[-1]
        _caps[:] = [each for each in _caps if each is not cap]
        if not _caps:
            for library in _controller.lib_controllers:
                if library.filepath in _before:
                    library.set_num_threads(_before[library.filepath])
            _before.clear()
            _now.clear()
        elif _caps[-1] != held:
            _cap_libraries(_caps[-1][0])


def _cap_libraries(n: int) -> None:
    for library in _controller.lib_controllers:
        wanted = 1 if library.user_api == "blas" else n
        if library.filepath not in _before:
            _before[library.filepath] = library.num_threads
        elif _now.get(library.filepath) == wanted:  # setting an unchanged value still takes time
            continue
        library.set_num_threads(wanted)
        _now[library.filepath] = wanted


def _look() -> bool:
    """Look for threaded libraries when modules came since the last look: this takes milliseconds."""
    global _controller, _modules
    if _modules == len(sys.modules):
        return False
    import_module("scipy.linalg")  # it brings a BLAS of its own, which inside a run would come too late for the cap
    from threadpoolctl import ThreadpoolController

    _controller = ThreadpoolController()
    _modules = len(sys.modules)
    return True


def for_blocks(fn: Callable[[int, int], object], n_rows: int, block: int) -> None:
    """Call ``fn(start, stop)`` for every block of rows, on several threads when allowed.

    Parameters
    ----------
    fn : callable
        Works on rows ``start:stop``; must release the GIL to gain anything, and must not touch rows of other blocks.
    n_rows : int
        Number of rows in all.
    block : int
        Rows per block. It fixes the boundaries, so the work of a block never depends on the thread count.

    Examples
    --------
    >>> seen = []
    >>> with limit_threads(1):
    ...     for_blocks(lambda start, stop: seen.append((start, stop)), 5, 2)
    >>> seen
    [(0, 2), (2, 4), (4, 5)]
    """
    if n_rows <= block:
        if n_rows > 0:
            fn(0, n_rows)
        return
    threads = thread_limit()
    # A block that itself asks for blocks runs them inline: waiting on the pool from inside the pool can deadlock.
    if threads == 1 or getattr(_inside, "block", False):
        for start in range(0, n_rows, block):
            fn(start, min(start + block, n_rows))
        return
    # The party that is free takes the next block, this thread too: one that has to share its core takes fewer.
    starts = iter(range(0, n_rows, block))
    helpers = min(threads, -(-n_rows // block)) - 1
    futures = [_pool(threads).submit(_take_blocks, fn, starts, n_rows, block) for _ in range(helpers)]
    try:
        _take_blocks(fn, starts, n_rows, block)
    finally:
        # A helper that has not begun by now finds no block left, and is not waited for.
        waited = [future for future in futures if not future.cancel()]
        for future in waited:
            future.exception()
    for future in waited:
        future.result()


def in_order(fn: Callable[[int], T], count: int) -> Iterator[T]:
    """Yield ``fn(0)``, ``fn(1)``, … in this order, computed on several threads when allowed.

    What is done with one result goes on while others compute; this thread computes, too, while the next one is not
    there. An error comes out in its turn, after the results before it. `fn` should need the interpreter little.

    Examples
    --------
    >>> list(in_order(lambda i: i * i, 4))
    [0, 1, 4, 9]
    """
    threads = min(thread_limit(), count)
    if threads < 2 or getattr(_inside, "block", False):
        yield from map(fn, range(count))
        return
    found: list[Any] = [None] * count
    there, failed = [threading.Event() for _ in range(count)], dict[int, BaseException]()

    def keep(start: int, _: int) -> None:
        try:
            found[start] = fn(start)
        except BaseException as error:
            failed[start] = error
            for _ in starts:  # the thread before has begun; none needs to begin after
                pass
            if not isinstance(error, Exception):  # an interrupt does not wait for its turn
                raise
        finally:
            there[start].set()

    starts = iter(range(count))
    futures = [_pool(threads).submit(_take_blocks, keep, starts, count, 1) for _ in range(threads - 1)]
    try:
        for i in range(count):
            while not there[i].is_set() and (start := next(starts, None)) is not None:
                _take_blocks(keep, iter((start,)), count, 1)
            there[i].wait()
            if i in failed:
                raise failed[i]
            yield found[i]
            found[i] = None  # it may be large
    finally:
        for _ in starts:  # the rest is not needed
            pass
        for future in futures:
            if not future.cancel():
                future.exception()


def _take_blocks(fn: Callable[[int, int], object], starts: Iterator[int], n_rows: int, block: int) -> None:
    _inside.block = True
    try:
        for start in starts:
            fn(start, min(start + block, n_rows))
    except BaseException:
        for _ in starts:  # no thread needs to go on
            pass
        raise
    finally:
        _inside.block = False


def _pool(threads: int) -> ThreadPoolExecutor:
    """Return the pool of this process and size; a forked child owns no threads, so it makes its own."""
    key = (os.getpid(), threads)
    pool = _pools.get(key)
    if pool is None:
        with _lock:
            pool = _pools.get(key)
            if pool is None:
                pool = ThreadPoolExecutor(threads, thread_name_prefix="fedfactor")
                _pools[key] = pool
    return pool


def _forget_after_fork() -> None:
    """Drop locks and pools that a fork may have copied in mid-use."""
    global _lock
    _lock = threading.RLock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
