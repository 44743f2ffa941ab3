"""Bytes in and out; what a hostile or broken peer may send is refused before it costs anything."""

from __future__ import annotations

import json
import pickle
import struct
import subprocess
import sys
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import fedfactor
from fedfactor.core.algorithm import Score
from fedfactor.core.errors import ProtocolError
from fedfactor.core.pytree import Array, leaves, record, telemetry, type_tag
from fedfactor.core.wire import HEADER_LIMIT, Leaf, check_message, checksum, from_bytes, read_header, receive, to_bytes
from fedfactor.testing.plain_loop import differences


@record
class Up:
    uplink: ClassVar = "sum"
    G: Array
    A: Array
    total: Array | None = telemetry(default=None)


@record
class Other:
    G: Array
    A: Array


@record
class Nest:
    inner: Up | None
    table: dict


EXPECTED = {Up: {"G": Leaf("float64", (2, 2)), "A": Leaf("float64", (2, 3)), "total": Leaf("float64", ())}}
LOOSE = {Up: {"G": Leaf("float64", (2, 2), exact=False), "A": Leaf("float64", (2, 3), exact=False)}}
GOOD = Up(np.ones((2, 2)), np.ones((2, 3)), np.asarray(3.0))


def raw(header, body=b""):
    """Put a header that no honest writer would write before a body."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def tensor(shape, start, stop, dtype="F64"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def header_of(message, **changes):
    """The honest header of a message, with entries changed (None takes one out)."""
    data = to_bytes(message)
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.update(changes)
    return {name: entry for name, entry in header.items() if entry is not None}, data[8 + length :]


def altered(**changes):
    return raw(*header_of(GOOD, **changes))


def outlined(outline):
    """An honest message whose outline says something else."""
    text = outline if isinstance(outline, str) else json.dumps(outline)
    return altered(__metadata__={"outline": text})


def npz():
    file = BytesIO()
    np.savez(file, G=np.ones((2, 2)))
    return file.getvalue()


def npy_of_objects():
    file = BytesIO()
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return file.getvalue()


TAG = f"{Up.__module__}:Up"
BYTES = to_bytes(GOOD)
PARTS = {"G": 1, "A": 1, "total": 1}
HOSTILE = {
    "empty": b"",
    "seven bytes": b"\x01\x00\x00\x00\x00\x00\x00",
    "length only": struct.pack("<Q", 2),
    "absurd header length": struct.pack("<Q", 2**62) + b"{}",
    "header length of all ones": b"\xff" * 8 + b"{}",
    "header longer than the bytes": struct.pack("<Q", 100) + b"{}",
    "header above the limit": raw(b" " * (HEADER_LIMIT + 1)),
    "truncated body": BYTES[:-1],
    "truncated header": BYTES[:40],
    "bytes after the end": BYTES + b"\x00" * 8,
    "zeros": b"\x00" * 64,
    "not JSON": raw(b"{not json}"),
    "not UTF-8": raw(b"\xff\xfe\xfd{}"),
    "JSON list": raw([1, 2]),
    "JSON empty list": raw([]),
    "JSON number": raw(12),
    "JSON null": raw(None),
    "JSON text": raw("text"),
    "no outline": raw({"G": tensor([1], 0, 8)}, b"\x00" * 8),
    "metadata is a list": altered(__metadata__=[]),
    "outline is a number": altered(__metadata__={"outline": 7}),
    "deep header": raw(b"[" * 200_000 + b"]" * 200_000),
    "deep header in a dict": raw(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "deep outline": outlined("[" * 100_000 + "]" * 100_000),
    "outline not JSON": outlined("{"),
    "outline empty list": outlined([]),
    "outline of one leaf": outlined(1),
    "outline of nothing": outlined(0),
    "outline of a list tag": outlined([["x"], PARTS]),
    "outline lacks parts": outlined([TAG]),
    "outline parts are a list": outlined([TAG, ["G", "A"]]),
    "outline with a strange part": outlined([TAG, {**PARTS, "extra": 0}]),
    "outline without a part": outlined([TAG, {"G": 1}]),
    "outline names a leaf that is not there": outlined([TAG, {"G": 1, "A": ["", {"x": 1}], "total": 1}]),
    "empty dict for a leaf": outlined([TAG, {"G": 1, "A": ["", {}], "total": 1}]),
    "empty dict for telemetry": outlined([TAG, {"G": 1, "A": 1, "total": ["", {}]}]),
    "record for telemetry": outlined(
        [TAG, {"G": 1, "A": 1, "total": [f"{Up.__module__}:Nest", {"inner": 0, "table": 0}]}]
    ),
    "unknown type": outlined(["os:system", PARTS]),
    "type of another class": to_bytes(Other(np.ones((2, 2)), np.ones((2, 3)))),
    "tag of another class": outlined([f"{Other.__module__}:Other", {"G": 1, "A": 1}]),
    "plain dict": to_bytes({"G": np.ones((2, 2)), "A": np.ones((2, 3))}),
    "wrong dtype": to_bytes(Up(np.ones((2, 2), dtype=np.float32), np.ones((2, 3)))),
    "integers for floats": to_bytes(Up(np.ones((2, 2), dtype=np.int64), np.ones((2, 3)))),
    "unknown dtype": altered(G=tensor([2, 2], 0, 32, "F99")),
    "dtype is a list": altered(G=tensor([2, 2], 0, 32, ["F64"])),
    "wrong shape": to_bytes(Up(np.ones((3, 2)), np.ones((2, 3)))),
    "transposed": to_bytes(Up(np.ones((2, 2)), np.ones((3, 2)))),
    "one dimension more": to_bytes(Up(np.ones((2, 2, 1)), np.ones((2, 3)))),
    "one number as 1-d": to_bytes(Up(np.ones((2, 2)), np.ones((2, 3)), np.ones(1))),
    "0-d for a matrix": to_bytes(Up(np.asarray(1.0), np.ones((2, 3)))),
    "shape of 2^62": altered(G=tensor([2**62, 2], 0, 32)),
    "shape whose product overflows": altered(G=tensor([2**32, 2**32], 0, 32)),
    "shape of 5000 digits": raw(b'{"G":{"dtype":"F64","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,8]}}'),
    "negative shape": altered(G=tensor([-2, -2], 0, 32)),
    "fractional shape": altered(G=tensor([2.5, 2], 0, 32)),
    "infinite shape": raw(
        b'{"__metadata__":{"outline":"[]"},"G":{"dtype":"F64","shape":[1e999],"data_offsets":[0,8]}}'
    ),
    "shape is text": altered(G=tensor("22", 0, 32)),
    "shape is null": altered(G=tensor(None, 0, 32)),
    "entry is null": raw({"__metadata__": {"outline": json.dumps([TAG, PARTS])}, "G": None}),
    "entry is a list": altered(G=[1, 2]),
    "overlapping offsets": altered(G=tensor([2, 2], 0, 32)),
    "offsets beyond the end": altered(A=tensor([2, 3], 10**9, 10**9 + 48)),
    "offsets reversed": altered(A=tensor([2, 3], 80, 32)),
    "offsets of 2^63": altered(A=tensor([2, 3], 2**63, 2**63 + 48)),
    "missing leaf": altered(A=None),
    "extra leaf": altered(Z=tensor([0], 88, 88)),
    "leaf twice": raw(
        json.dumps(header_of(GOOD)[0])[:-1].encode() + b',"G":{"dtype":"F64","shape":[2,3],"data_offsets":[0,48]}}',
        header_of(GOOD)[1],
    ),
    "NaN": to_bytes(Up(np.array([[1, np.nan], [1, 1]]), np.ones((2, 3)))),
    "infinity": to_bytes(Up(np.array([[1, np.inf], [1, 1]]), np.ones((2, 3)))),
    "infinities that cancel": to_bytes(Up(np.array([[np.inf, -np.inf], [1, 1]]), np.ones((2, 3)))),
    "NaN in telemetry": to_bytes(Up(np.ones((2, 2)), np.ones((2, 3)), np.asarray(np.nan))),
    "pickle": pickle.dumps(GOOD.G),
    "npz": npz(),
    "npy of objects": npy_of_objects(),
    "more bytes than any message has": to_bytes(Up(np.ones((400, 400)), np.ones((2, 3)))),
}


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("name", HOSTILE)
def test_refused_with_a_protocol_error_and_little_memory(name):
    data = HOSTILE[name]
    for expected in (EXPECTED,) if name in ("0-d for a matrix", "wrong shape") else (EXPECTED, LOOSE):
        tracemalloc.start()
        try:
            with pytest.raises(ProtocolError):
                receive(data, expected)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        # JSON that is parsed and thrown away may take some times its own length; declared shapes may take nothing.
        assert peak < 200_000 + 40 * min(len(data), HEADER_LIMIT)


def test_the_honest_message_passes():
    for message in (GOOD, Up(GOOD.G, GOOD.A)):
        assert not differences(message, receive(to_bytes(message), EXPECTED))


def test_a_message_kept_under_a_former_identifier_is_received():
    """An upload that a client kept for resending before the record had an identifier of its own."""
    message = Score.of(1.0, 2.0, 3.0)
    size = len(to_bytes(message))
    data = to_bytes(message).replace(b"core.Score", b"fedfactor.core.protocol:Score")
    longer = len(data) - size
    data = (struct.unpack("<Q", data[:8])[0] + longer).to_bytes(8, "little") + data[8:]
    spec = {Score: dict.fromkeys(("sse", "n", "total"), Leaf("float64", ()))}
    assert differences(receive(data, spec), message) == []


def test_smaller_is_fine_where_only_the_largest_shape_was_announced():
    small = Up(np.ones((1, 2)), np.ones((0, 3)))
    assert not differences(small, receive(to_bytes(small), LOOSE))
    with pytest.raises(ProtocolError, match="announced"):
        receive(to_bytes(small), EXPECTED)


def test_a_simulated_message_is_held_to_the_same_rules():
    check_message(GOOD, EXPECTED)
    for wrong in (Up(GOOD.A, GOOD.A), Up(GOOD.G * np.nan, GOOD.A), Up(GOOD.G, None), Other(GOOD.G, GOOD.A), GOOD.G):
        with pytest.raises(ProtocolError):
            check_message(wrong, EXPECTED)


def test_a_sum_that_overflows_is_not_taken_for_infinity():
    huge = Up(np.full((2, 2), 1e308), np.ones((2, 3)))
    with np.errstate(over="ignore"):
        check_message(huge, EXPECTED)


LARGE = """
import resource, sys
from fedfactor.core.errors import ProtocolError
from fedfactor.core.wire import Leaf, receive
from fedfactor.core.algorithm import Score
data = sys.stdin.buffer.read()
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    receive(data, {Score: {"sse": Leaf("float64", (2**31, 2**20), exact=False)}})
except ProtocolError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)
"""


@pytest.mark.integration
@pytest.mark.parametrize("shape", [[2**62], [2**31, 2**20], [2**31, 1], [-1, 5], [2**63, 0]])
def test_absurd_sizes_cost_no_memory_even_when_announced(shape):
    tag = "fedfactor.core.algorithm:Score"
    head = {"__metadata__": {"outline": json.dumps([tag, {"sse": 1}])}, "sse": tensor(shape, 0, 8)}
    done = subprocess.run(
        [sys.executable, "-c", LARGE],
        input=raw(head, b"\x00" * 8),
        capture_output=True,
        check=True,
        env={"PYTHONPATH": str(Path(fedfactor.__file__).parents[1])},
        timeout=60,
    )
    assert int(done.stdout) < 20_000, "kilobytes were taken for a message of some hundred bytes"


DTYPES = [np.float64, np.float32, np.float16, np.int64, np.int32, np.int8, np.uint64, np.uint8, np.bool_]
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
LEAVES = st.one_of(st.none(), *(arrays.arrays(dtype, SHAPES) for dtype in DTYPES))
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="."), min_size=1, max_size=8).filter(
    lambda name: name != "__metadata__"
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(NAMES, inner, max_size=3),
        st.builds(Other, G=inner, A=inner),
        st.builds(
            Nest, inner=st.none() | st.builds(Up, G=LEAVES, A=LEAVES), table=st.dictionaries(NAMES, inner, max_size=2)
        ),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(TREES)
def test_any_tree_survives_its_bytes(tree):
    again = from_bytes(to_bytes(tree))
    assert not differences(tree, again)
    assert repr(_skeleton(tree)) == repr(_skeleton(again))


def _skeleton(tree):
    if isinstance(tree, dict):
        return {name: _skeleton(tree[name]) for name in sorted(tree)}
    return type(tree).__name__


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data):
    with pytest.raises(ProtocolError):
        receive(data, EXPECTED)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(BYTES) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_refused_or_changes_values_only(position, flip):
    data = bytearray(BYTES)
    data[position] ^= flip
    try:
        with np.errstate(all="ignore"):
            message = receive(bytes(data), EXPECTED)
    except ProtocolError:
        return
    assert {path: (np.shape(leaf), leaf.dtype) for path, leaf in leaves(message)}.items() <= {
        path: (np.shape(leaf), leaf.dtype) for path, leaf in leaves(GOOD)
    }.items()


def test_views_in_any_layout_keep_their_values():
    X = np.arange(24.0).reshape(4, 6)
    for view in (X.T, X[::2, ::-1], np.asfortranarray(X), X[1]):
        np.testing.assert_array_equal(from_bytes(to_bytes({"x": view}))["x"], view)


def test_names_that_would_fall_together_are_refused():
    with pytest.raises(ProtocolError, match=r"a\.b"):
        to_bytes({"a.b": np.ones(1), "a": {"b": np.zeros(1)}})


def test_text_travels_beside():
    data = to_bytes({"x": np.ones(2)}, {"about": "me"})
    assert read_header(data)[1]["about"] == "me"


def test_bytes_never_cause_an_import():
    data = altered(__metadata__={"outline": json.dumps(["antigravity:Up", PARTS])})
    with pytest.raises(ProtocolError, match="nothing here defines"):
        from_bytes(data)
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    ("dtype", "shape", "exact", "loose"),
    [
        ("float64", (2, 3), True, True),
        ("float64", (2, 2), False, True),
        ("float64", (3, 3), False, False),
        ("float64", (2, 4), False, False),
        ("float64", (6,), False, False),
        ("float64", (2, 3, 1), False, False),
        ("float32", (2, 3), False, False),
    ],
)
def test_what_a_leaf_admits(dtype, shape, exact, loose):
    assert Leaf("float64", (2, 3)).admits(dtype, shape) is exact
    assert Leaf("float64", (2, 3), exact=False).admits(dtype, shape) is loose


def test_the_most_bytes_of_a_leaf():
    assert Leaf("float32", (2, 3)).nbytes == 24
    assert Leaf("uint8", ()).nbytes == 1


@pytest.mark.parametrize("data", [b"", b"1234567", raw(b"{"), struct.pack("<Q", 1) + b"{", raw(b"[1]"), raw(b"{}")])
def test_headers_that_are_none(data):
    with pytest.raises(ProtocolError):
        read_header(data)


def test_the_shortest_and_the_longest_header():
    with pytest.raises(ProtocolError, match="does not say what the message is"):
        read_header(raw(b"{}"))  # two bytes are read; they say nothing
    whole = to_bytes(GOOD)
    length = struct.unpack("<Q", whole[:8])[0]
    read_header(whole, limit=length)
    with pytest.raises(ProtocolError, match="header claims"):
        read_header(whole, limit=length - 1)
    header, text = read_header(memoryview(whole[: 8 + length]))
    assert set(header) == {"G", "A", "total"}
    assert "outline" in text
    with pytest.raises(ProtocolError, match="header claims"):
        read_header(whole[: 7 + length])


def test_a_bare_array_and_nothing_survive_their_bytes():
    assert from_bytes(to_bytes(np.arange(3))).tolist() == [0, 1, 2]
    assert from_bytes(to_bytes(None)) is None
    assert from_bytes(to_bytes({"a": {"b": np.ones(1), "c": None}}))["a"]["c"] is None


def test_types_that_only_the_caller_knows():
    data = to_bytes(GOOD).replace(type_tag(Up).encode(), b"x" * len(type_tag(Up)))
    with pytest.raises(ProtocolError, match="which nothing here defines"):
        from_bytes(data)
    assert not differences(GOOD, from_bytes(data, extra={"x" * len(type_tag(Up)): Up}))


def test_what_is_wrong_with_a_simulated_message_is_told():
    for wrong, says in [
        (Up(GOOD.G, None), "Up lacks A"),
        (Up(GOOD.G, GOOD.A, {"x": GOOD.G}), "leaf 'total.x' that was not announced"),
        (Up(GOOD.G.astype("f4"), GOOD.A), r"Up.G is float32\[2, 2\], but float64\[2, 2\] was announced"),
        (Other(GOOD.G, GOOD.A), "Other was sent, but the algorithm announced only Up"),
        (Up(GOOD.G, GOOD.A * np.inf), "Up.A holds NaN or infinity"),
    ]:
        with pytest.raises(ProtocolError, match=says):
            check_message(wrong, EXPECTED)
    with pytest.raises(ProtocolError, match=r"Up\.total holds no array but parts of its own"):
        check_message(Up(GOOD.G, GOOD.A, {}), EXPECTED)


class OnCard:
    """What a tensor on a card shows of itself, without one: asking for its sum is counted."""

    is_cuda = True
    asked = 0

    def __init__(self, array):
        self.array, self.dtype, self.shape = array, array.dtype, array.shape

    def sum(self, dtype=None):
        OnCard.asked += 1
        return self.array.sum()

    def get(self):
        return self.array


def test_values_on_a_card_are_asked_for_once_or_not_at_all():
    pytest.importorskip("torch")
    good, bad = (Up(OnCard(GOOD.G), OnCard(A), GOOD.total) for A in (GOOD.A, GOOD.A * np.nan))
    assert float(checksum(good)) == 10
    assert float(checksum(Up(OnCard(GOOD.G), GOOD.A))) == 4
    assert checksum(GOOD) is None
    OnCard.asked = 0
    check_message(bad, EXPECTED, ask_card=False)
    assert OnCard.asked == 0
    check_message(good, EXPECTED)
    assert OnCard.asked == 2
    with pytest.raises(ProtocolError, match=r"Up\.A holds NaN or infinity"):
        check_message(bad, EXPECTED)
    with np.errstate(over="ignore"):
        check_message(Up(OnCard(np.full((2, 2), 1e308)), GOOD.A), EXPECTED)
