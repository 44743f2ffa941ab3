"""Docstrings cut into sections and entries."""

from __future__ import annotations

from fedfactor.core.docstrings import (
    complete_methods,
    completed,
    entries_of_bases,
    indented,
    join_sections,
    split_entries,
    split_sections,
    with_formula,
)


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


class Base:
    """A base.

    Attributes
    ----------
    a : int
        One.
    b : int
        Two.
    """

    __module__ = "fedfactor.somewhere"

    def work(self):
        """Work.

        Parameters
        ----------
        hard : bool
            How.
        """

    def _hidden(self):
        """Hide.

        Parameters
        ----------
        well : bool
            How.
        """


class Stranger(Base):
    """Of another library.

    Attributes
    ----------
    c : int
        Three.
    """

    def work(self):
        """Work elsewhere."""


class Made(Stranger):
    """Made of both.

    Attributes
    ----------
    b : float
        Another two.
    """

    def work(self):
        """Work more."""

    def rest(self):
        """Rest."""

    def _hidden(self):
        """Hide more."""


def test_entries_of_a_class_replace_those_of_its_bases_and_other_libraries_say_nothing():
    Made.__module__ = "fedfactor.elsewhere"
    assert entries_of_bases(Made, "Attributes") == "a : int\n    One.\nb : float\n    Another two."
    assert entries_of_bases(Made, "Notes") == ""


def test_public_methods_tell_what_those_that_they_override_tell():
    for module in ("fedfactor.elsewhere", "of_a_user"):  # a user's own class has bases of ours
        Made.__module__, Made.work.__doc__ = module, "Work more."
        complete_methods(Made)
        assert split_sections(Made.work.__doc__) == ("Work more.", {"Parameters": "hard : bool\n    How."})
    assert (Made.rest.__doc__, Made._hidden.__doc__) == ("Rest.", "Hide more.")


def test_a_formula_is_put_below_the_summary_once():
    theirs = "Tell.\n\n.. math:: x\n    + y\n\nMore.\n\nNotes\n-----\n.. math:: z"
    assert with_formula("Say.\n\nLoud.\n\nTwice.", theirs) == "Say.\n\n.. math:: x\n    + y\n\nLoud.\n\nTwice."
    assert with_formula("Say.", theirs) == "Say.\n\n.. math:: x\n    + y"
    assert with_formula("Say.\n\n.. math:: own", theirs) == "Say.\n\n.. math:: own"
    assert with_formula("Say.", "Tell.\n\nNotes\n-----\n.. math:: z") == "Say."
