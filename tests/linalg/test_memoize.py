import gc
import weakref

import numpy as np
import pytest

from fedfactor.linalg import memoize as room
from fedfactor.linalg.memoize import once


def doubled(A):
    return 2 * A


def test_a_writable_array_is_computed_each_time():
    A = np.ones(3)
    assert once(doubled, A) is not once(doubled, A)
    A[0] = 5
    assert once(doubled, A)[0] == 10


@pytest.mark.slow
def test_a_read_only_array_is_computed_once_and_forgotten_with_it():
    A = np.ones(3)
    A.flags.writeable = False
    first = once(doubled, A)
    assert once(doubled, A) is first
    assert not first.flags.writeable
    key = (doubled.__qualname__, id(A))
    assert key in room._known
    del A, first
    gc.collect()
    assert key not in room._known


def test_a_view_does_not_keep_its_array():
    A = np.ones((1, 3))
    A.flags.writeable = False
    gone = weakref.ref(A)
    once(np.transpose, A)
    del A
    gc.collect()
    assert gone() is None


def test_two_arrays_are_not_mixed_up():
    one, two = np.ones(3), np.full(3, 2.0)
    for A in (one, two):
        A.flags.writeable = False
    assert once(doubled, one)[0] == 2
    assert once(doubled, two)[0] == 4
