"""A file that only grows: what it keeps, and every way in which it can be changed behind one's back."""

from __future__ import annotations

import json
import stat

import pytest

from fedfactor.core.hash_chain import Chain, ChainError
from fedfactor.core.rollback_detection import Witness


def written(path, *lines, witness=None):
    chain = Chain(path, witness)
    with chain.alone():
        for line in lines:
            chain.append(line)
    return chain


@pytest.fixture
def chain(tmp_path):
    return written(tmp_path / "notes.jsonl", {"n": 1}, {"n": 2}, {"n": "ö"})


def test_lines_come_back_in_order(chain):
    assert chain.lines() == Chain(chain.path).lines() == [{"n": 1}, {"n": 2}, {"n": "ö"}]
    chain.lines()[0]["n"] = 9
    assert chain.lines()[0] == {"n": 1}  # what was handed out is not what is kept


def test_an_empty_one_has_none(tmp_path):
    assert Chain(tmp_path / "none").lines() == []
    assert not Chain(tmp_path / "none").follows(1, "")


def test_the_file_is_its_owners_and_is_plain_text(chain):
    assert stat.S_IMODE(chain.path.stat().st_mode) == 0o600
    assert "ö" in chain.path.read_text("utf-8")
    head = json.loads(chain.path.with_name("notes.jsonl.head").read_bytes())
    assert head["lines"] == 3


def test_folders_are_made_for_it(tmp_path):
    assert written(tmp_path / "a" / "b" / "notes", {"n": 1}).lines() == [{"n": 1}]


def test_two_readers_of_one_file_see_each_others_lines(chain):
    other = Chain(chain.path)
    other.lines()
    with chain.alone():
        chain.append({"n": 4})
    assert other.lines()[-1] == {"n": 4}
    with other.alone():
        other.append({"n": 5})
    assert chain.lines()[-1] == {"n": 5}


def test_an_unchanged_file_is_read_once(chain, monkeypatch):
    monkeypatch.setattr(chain, "_checked", lambda: pytest.fail("read again"))
    assert len(chain.lines()) == 3


def test_a_line_that_was_torn_is_written_over(chain):
    with chain.path.open("ab") as file:
        file.write(b'{"before": "')
    assert len(Chain(chain.path).lines()) == 3
    again = written(chain.path, {"n": 4})
    assert again.lines()[-1] == {"n": 4}
    assert len(chain.path.read_bytes().splitlines()) == 4


def test_one_line_more_than_was_counted_is_a_kill_in_between(chain, tmp_path):
    head = chain.path.with_name("notes.jsonl.head")
    before = head.read_bytes()
    written(chain.path, {"n": 4})
    head.write_bytes(before)
    assert len(Chain(chain.path).lines()) == 4
    written(chain.path, {"n": 5})
    head.write_bytes(before)
    with pytest.raises(ChainError, match="it has 5 lines, but 3 were written"):
        Chain(chain.path).lines()


def test_which_lines_it_has_can_be_asked(chain):
    texts = chain.path.read_bytes().splitlines(keepends=True)
    before = [json.loads(text)["before"] for text in texts]
    assert before[0] == ""
    last = json.loads(chain.path.with_name("notes.jsonl.head").read_bytes())["digest"]
    assert all(chain.follows(number, digest) for number, digest in enumerate([*before[1:], last], 1))
    assert not chain.follows(2, before[1])
    assert not chain.follows(4, last)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda lines: lines[:-1], "it has 2 lines, but 3 were written"),
        (lambda lines: [lines[0], lines[2], lines[1]], "line 2 does not follow the one before it"),
        (lambda lines: [*lines[:2], lines[2].replace(b"n", b"m")], "line 3 is not the one that was written"),
        (lambda lines: [lines[0].replace(b"1", b"7"), *lines[1:]], "line 2 does not follow"),
        (lambda lines: [b"{\n", *lines[1:]], "line 1 cannot be read"),
        (lambda lines: [b"[]\n", *lines[1:]], "line 1 cannot be read"),
        (lambda lines: [b"{}\n", *lines[1:]], "line 1 cannot be read"),
    ],
)
def test_changes_are_noticed(chain, change, says):
    chain.path.write_bytes(b"".join(change(chain.path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(ChainError, match=says):
        Chain(chain.path).lines()


def test_a_lost_file_and_a_damaged_head_are_noticed(chain):
    head = chain.path.with_name("notes.jsonl.head")
    for text in ("{", "[]", "{}", '{"lines": "x", "digest": ""}'):
        head.write_text(text)
        with pytest.raises(ChainError, match=r"notes\.jsonl\.head beside it is damaged"):
            Chain(chain.path).lines()
    head.write_text('{"lines": 3, "digest": "x"}')
    chain.path.unlink()
    with pytest.raises(ChainError, match="it has 0 lines, but 3 were written"):
        Chain(chain.path).lines()


def test_a_witness_notices_an_older_copy_and_another_past(tmp_path):
    path, witness = tmp_path / "notes", Witness(tmp_path / "books")
    head = path.with_name("notes.head")
    written(path, {"n": 1}, witness=witness)
    old = path.read_bytes(), head.read_bytes()
    written(path, {"n": 2}, witness=witness)
    assert witness.of(path)[0] == 2
    assert len(Chain(path, witness).lines()) == 2
    path.write_bytes(old[0])
    head.write_bytes(old[1])
    assert len(Chain(path).lines()) == 1
    with pytest.raises(ChainError, match="books remembers 2 lines of it"):
        Chain(path, witness).lines()
    written(path, {"n": 3})
    with pytest.raises(ChainError, match="books remembers 2 lines of it"):
        Chain(path, witness).lines()
