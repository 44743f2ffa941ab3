"""A second memory of files that only grow: what it keeps, which rows it knows again, and what it refuses."""

from __future__ import annotations

import json

import pytest

from fedfactor.core.rollback_detection import SKETCH, Witness, WitnessError


def digests(*numbers):
    return [f"{number:04x}" for number in numbers]


@pytest.fixture
def witness(tmp_path):
    return Witness(tmp_path / "books")


def yes(lines, digest):
    return True


def no(lines, digest):
    return False


def kept(witness, path):
    return json.loads(witness.path.read_bytes())[str(path)]


def test_an_unknown_chain_has_no_lines(witness, tmp_path):
    assert witness.of(tmp_path / "a") == (0, "")


def test_a_chain_that_was_only_bound_has_no_lines(witness, tmp_path):
    witness.bind(tmp_path / "a", "ledger", "r1", no)
    assert witness.of(tmp_path / "a") == (0, "")


def test_lines_and_rows_are_kept_together(witness, tmp_path):
    here = tmp_path / "a"
    witness.bind(here, "ledger", "r1", no, digests(1))
    witness.tell(here, 2, "aa")
    witness.bind(here, "ledger", "r2", no, digests(2))
    witness.bind(here, "ledger", "r1", no, digests(1))
    about = kept(witness, here)
    assert (about["lines"], about["digest"], about["kind"]) == (2, "aa", "ledger")
    assert about["rows"] == ["r1", "r2"]
    assert about["sketches"] == [digests(1), digests(2)]


@pytest.mark.parametrize(
    ("kind", "rows", "sketch"), [("diary", "r1", ()), ("ledger", "r2", digests(*range(8))), ("ledger", "r2", ())]
)
def test_other_rows_and_other_kinds_have_files_of_their_own(witness, tmp_path, kind, rows, sketch):
    witness.bind(tmp_path / "a", "ledger", "r1", no, digests(*range(20, 28)))
    witness.tell(tmp_path / "a", 1, "aa")
    witness.bind(tmp_path / "b", kind, rows, no, sketch)


def test_a_file_without_lines_binds_nobody(witness, tmp_path):
    (tmp_path / "a").touch()
    witness.bind(tmp_path / "a", "ledger", "r1", no)
    witness.bind(tmp_path / "b", "ledger", "r1", no)


@pytest.mark.parametrize(("rows", "sketch"), [("r1", ()), ("r2", digests(*range(4, 12)))])
def test_the_same_rows_go_on_where_they_began(witness, tmp_path, rows, sketch):
    old, new = tmp_path / "a", tmp_path / "b"
    witness.bind(old, "ledger", "r1", no, digests(*range(8)))
    witness.tell(old, 3, "aa")
    with pytest.raises(WitnessError, match="does not go on from there"):
        witness.bind(new, "ledger", rows, no, digests(*range(8)) if rows == "r2" else sketch)
    asked = []
    witness.bind(new, "ledger", "r1", lambda *what: asked.append(what) or True)  # it was moved, and has those lines
    assert asked == [(3, "aa")]
    old.touch()
    with pytest.raises(WitnessError, match="have been answered for in"):  # a copy: both are there
        witness.bind(tmp_path / "c", "ledger", "r1", yes)


@pytest.mark.parametrize(
    ("here", "there", "same"),
    [
        (range(8), range(8), True),
        (range(7), range(7), False),  # too few to say anything
        (range(8), range(7), False),
        (range(12), range(4, 16), True),  # eight of sixteen are in both
        (range(12), range(5, 17), False),
        (range(SKETCH), range(1000, 1000 + SKETCH), False),
        ([*range(32), *range(100, 132)], [*range(32), *range(200, 232)], True),  # the smallest decide
        ([*range(31), *range(100, 133)], [*range(31), *range(200, 233)], False),
    ],
)
def test_rows_are_alike_when_half_of_the_smallest_digests_are(witness, tmp_path, here, there, same):
    witness.bind(tmp_path / "a", "ledger", "r1", no, digests(*here))
    witness.tell(tmp_path / "a", 1, "aa")
    if same:
        with pytest.raises(WitnessError):
            witness.bind(tmp_path / "b", "ledger", "r2", no, digests(*there))
    else:
        witness.bind(tmp_path / "b", "ledger", "r2", no, digests(*there))


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", '{"a": 1}', '{"a": {"digest": ""}}', '{"a": {"lines": "x", "digest": ""}}',
        '{"a": {"lines": 1, "digest": "", "sketches": [["zz"]]}}', '{"a": {"lines": 1, "digest": "", "rows": 3}}',
    ],
)  # fmt: skip
def test_a_damaged_one_is_not_forgotten(witness, tmp_path, text):
    witness.path.write_text(text)
    with pytest.raises(WitnessError, match=r"is damaged.*Restore it from a copy"):
        witness.of(tmp_path / "a")
