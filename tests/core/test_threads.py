"""The thread cap: nesting, fixed blocks, forks."""

from __future__ import annotations

import math
import multiprocessing
import os
import subprocess
import sys
import threading
import time

import pytest
from threadpoolctl import threadpool_info

from fedfactor.core.threads import VARIABLES, _quota, for_blocks, in_order, limit_threads, thread_limit, usable_cores


def blas_threads():
    return max((lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"), default=1)


def test_cap_nests_and_comes_back():
    before, blas = thread_limit(), blas_threads()
    assert before == usable_cores()
    with limit_threads(1):
        assert (thread_limit(), blas_threads()) == (1, 1)
        with limit_threads(None), limit_threads(1):
            assert thread_limit() == 1
        with limit_threads(2):
            assert thread_limit() == 2
        assert (thread_limit(), blas_threads()) == (1, 1)
    with pytest.raises(RuntimeError), limit_threads(1):
        raise RuntimeError
    assert (thread_limit(), blas_threads()) == (before, blas)


def test_caps_that_overlap_in_two_threads_leave_nothing_behind():
    before, blas = thread_limit(), blas_threads()
    first, second = limit_threads(1), limit_threads(before + 1)
    first.__enter__()
    second.__enter__()
    assert thread_limit() == before + 1
    first.__exit__(None, None, None)  # a fit that began earlier ends earlier
    assert thread_limit() == before + 1
    third = limit_threads(before + 1)
    third.__enter__()
    second.__exit__(None, None, None)
    assert thread_limit() == before + 1  # an equal cap is still held by somebody
    third.__exit__(None, None, None)
    assert (thread_limit(), blas_threads()) == (before, blas)


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize(("value", "threads"), [("1", 1), ("1,4", 1), ("100000", None), ("0", None), ("many", None)])
def test_the_environment_caps_threads(monkeypatch, variable, value, threads):
    for each in VARIABLES:
        monkeypatch.delenv(each, raising=False)
    free = usable_cores()
    monkeypatch.setenv(variable, value)
    assert usable_cores() == (free if threads is None else threads) == thread_limit()


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/box/inner", {"box/cpu.max": "150000 100000", "box/inner/cpu.max": "max 100000"}, 2),
        ("0::/box", {"box/cpu.max": "max 100000"}, math.inf),
        ("4:memory:/a\n1:cpu,cpuacct:/a", {"cpu/a/cpu.cfs_quota_us": "100000", "cpu/a/cpu.cfs_period_us": "100000"}, 1),
        ("1:cpu:/a", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, math.inf),
        ("0::/gone", {}, math.inf),
    ],
)
def test_a_quota_of_a_container_is_found(tmp_path, groups, files, cores):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    (tmp_path / "own").write_text(groups + "\n")
    assert _quota(tmp_path, tmp_path / "own") == cores
    assert _quota(tmp_path, tmp_path / "not there") == math.inf


INSIDE = """
import threading, numpy as np, fedfactor
from threadpoolctl import threadpool_info
from fedfactor.algorithms import PooledNMF
from fedfactor.core.threads import limit_threads, thread_limit, for_blocks

def most():
    return max([lib["num_threads"] for lib in threadpool_info()] + [thread_limit()])

seen = []
class Watched(PooledNMF):
    def server_step(self, state, up, at):
        seen.append(most())
        return PooledNMF.server_step(self, state, up, at)
    def client_step(self, shard, state, down, at):
        seen.append(most())
        return PooledNMF.client_step(self, shard, state, down, at)

fedfactor.run(Watched(2), {name: np.random.default_rng(0).random((9, 5)) for name in "abc"[:OWNERS]}, rounds=3, ENGINE)
print(max(seen))
"""


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core leaves nothing to cap")
@pytest.mark.parametrize("owners", [1, 3])
@pytest.mark.parametrize("how", ["environment", "limit_threads", "workers"])
def test_neither_server_nor_clients_go_above_a_cap(owners, how):
    code = INSIDE.replace("OWNERS", str(owners))
    code = code.replace("ENGINE", "engine=fedfactor.LocalEngine(workers=1)" if how == "workers" else "")
    if how == "limit_threads":
        code = code.replace("fedfactor.run(", "with limit_threads(1): fedfactor.run(")
    free = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    env = free | ({"OMP_NUM_THREADS": "1"} if how == "environment" else {})
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert ran.stdout == "1\n", ran.stderr


@pytest.mark.parametrize("bad", [0, -1, 1.5])
def test_bad_caps_are_refused(bad):
    with pytest.raises(ValueError, match="at least 1"), limit_threads(bad):
        pass


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 100])
def test_blocks_do_not_depend_on_threads(rows):
    seen = []
    for threads in (1, 3):
        blocks = []
        with limit_threads(threads):
            for_blocks(lambda a, b: blocks.append((a, b)), rows, 8)  # noqa: B023  run before the next pass
        seen.append(sorted(blocks))
    assert seen[0] == seen[1]
    assert [cell for a, b in seen[0] for cell in range(a, b)] == list(range(rows))


def test_several_threads_really_work_and_errors_come_out():
    meet = threading.Barrier(2, timeout=20)
    with limit_threads(2):
        for_blocks(lambda a, b: meet.wait(), 2, 1)
        with pytest.raises(ZeroDivisionError):
            for_blocks(lambda a, b: 1 // a, 2, 1)


def test_blocks_inside_blocks_do_not_wait_for_each_other():
    inner = []
    with limit_threads(2):
        for_blocks(lambda a, b: for_blocks(lambda c, d: inner.append((a, c)), 4, 1), 4, 1)
    assert sorted(inner) == [(a, c) for a in range(4) for c in range(4)]


def _in_child(queue):
    meet = threading.Barrier(2, timeout=20)
    with limit_threads(2):
        for_blocks(lambda a, b: meet.wait(), 2, 1)
    queue.put(os.getpid())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", [m for m in ("fork", "spawn") if m in multiprocessing.get_all_start_methods()])
def test_pool_is_made_anew_in_a_child(method):
    with limit_threads(2):
        for_blocks(lambda a, b: None, 4, 1)
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == child.pid
    child.join(timeout=60)
    assert child.exitcode == 0


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_order_whoever_is_slow(threads):
    def slow_first(i):
        time.sleep(0.01 if i % 3 == 0 else 0.0)
        return i

    with limit_threads(threads):
        assert list(in_order(slow_first, 20)) == list(range(20))
        assert list(in_order(slow_first, 0)) == []


def test_what_is_done_with_a_result_goes_on_while_others_are_computed():
    got_one, goes_on = threading.Event(), threading.Event()

    def later_ones_wait(i):
        if i > 1 and got_one.wait(1):
            goes_on.set()
        return i

    with limit_threads(2):
        results = in_order(later_ones_wait, 8)
        assert next(results) == 0
        got_one.set()
        assert goes_on.wait(20)  # while nobody asks for the next result
        assert list(results) == list(range(1, 8))


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_in_the_middle_comes_out_and_nobody_waits(threads):
    def fails(i):
        if i == 4:
            raise KeyError("four")
        return i

    got = []
    with limit_threads(threads), pytest.raises(KeyError, match="four"):
        got.extend(in_order(fails, 50))
    assert got == [0, 1, 2, 3]


def test_an_error_comes_in_its_turn_and_the_first_of_several_comes_out():
    def fails(i):
        time.sleep(0.02 if i < 2 else 0.0)
        if i in (1, 2, 3):
            raise KeyError(i)
        return i

    got = []
    with limit_threads(4), pytest.raises(KeyError, match="1"):
        got.extend(in_order(fails, 50))
    assert got == [0]


def test_results_that_nobody_wants_are_not_computed():
    begun = []
    with limit_threads(2):
        results = in_order(lambda i: begun.append(i) or time.sleep(0.005), 1000)
        next(results)
        results.close()
        assert len(begun) < 100
        assert list(in_order(lambda i: i, 3)) == [0, 1, 2]  # the pool is free again
