"""Docstrings cut into sections and entries."""

from __future__ import annotations

from fedfactor.core.docstrings import completed, indented, join_sections, split_entries, split_sections


def test_titles_are_lines_with_as_many_dashes_below():
    doc = "Head.\n\nMore.\n\nNotes\n-----\nOne.\n\nTwo.\n\nSee\n---\nThree.\n\nLong\n--\nno title\n\n-----\n"
    head, sections = split_sections(doc)
    assert head == "Head.\n\nMore."
    assert list(sections) == ["Notes", "See"]
    assert sections["Notes"] == "One.\n\nTwo."
    assert sections["See"].startswith("Three.\n\nLong\n--\nno title")
    assert split_sections("Head.") == ("Head.", {})
    assert split_sections("\n---\nHead.")[1] == {}
    assert split_sections("One\n---\nSections only.") == ("", {"One": "Sections only."})


def test_put_together_again():
    assert join_sections("Head.", {"Notes": "One.", "See": "Two."}) == "Head.\n\nNotes\n-----\nOne.\n\nSee\n---\nTwo."
    assert join_sections("Head.", {}) == "Head."


def test_lines_are_broken_at_spaces_only():
    long = "word " * 30 + "x" * 120 + " up-to-date" * 12
    lines = indented(long + "\nnext").split("\n")
    assert all(line.startswith("    ") for line in lines)
    assert lines[-1] == "    next"
    assert 90 < len(lines[0]) <= 104
    assert "    " + "x" * 120 in lines
    for shift in range(1, 12):
        assert not any(line.endswith("-") for line in indented("x" * shift + " up-to-date" * 30).split("\n"))


def test_entries_by_name():
    assert split_entries("a : int\n    One.\nb : int\n    Two.\n\n    More.") == {
        "a": "a : int\n    One.",
        "b": "b : int\n    Two.\n\n    More.",
    }
    assert split_entries("") == {}


def test_an_own_docstring_is_completed_and_keeps_what_it_says():
    theirs = "Do.\n\nParameters\n----------\na : int\n    Theirs.\nb : int\n    Two.\n\nReturns\n-------\nint"
    own = "Do more.\n\nParameters\n----------\na : int\n    Own.\n\nNotes\n-----\nSome."
    head, sections = split_sections(completed(own, theirs))
    assert head == "Do more."
    assert list(sections) == ["Parameters", "Returns", "Notes"]
    assert split_entries(sections["Parameters"]) == {"a": "a : int\n    Own.", "b": "b : int\n    Two."}
    assert (sections["Returns"], sections["Notes"]) == ("int", "Some.")
    assert completed("Do.", "Do.") == "Do."
