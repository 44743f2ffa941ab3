"""Prose uses the terms of the field: docstrings, comments, messages, help texts, pages and examples."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PHRASES = {
    r"tell|tells|told|telling": "return, state, report, show, distinguish",
    r"foretell|foretells|foretold|foretelling": "predict, estimate",
    r"whoever|whom|whomever": "the client, the party, the caller",
    r"somebody|someone's|anybody|everybody|nobody": "a party, any client, all clients, no client",
    r"anew": "again",
    r"card|cards": "GPU, device",
    r"kept aside|keeps? aside|keeping aside": "held out",
    r"manners": "interface, conventions",
    r"the house|houses": "the organisation",
    r"secure sums?": "secure aggregation",
}
"""Phrase → what to write instead."""
PATTERN = {phrase: re.compile(rf"(?<![\w-])(?:{phrase})(?![\w-])", re.IGNORECASE) for phrase in PHRASES}
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("src/fedfactor/audit/item_pairs.py", "told"): "the name of a parameter",
    ("src/fedfactor/cli/report.py", "card"): "a class of the style sheet",
    ("src/fedfactor/cli/quality_text.py", "card"): "a class of the style sheet",
}
"""File and matched text → why it is right there."""
UNREVISED = {
    "docs/papers/claims.md": 3,
    "docs/papers/dsanls_details.md": 2,
    "docs/papers/feddmf.md": 3,
    "docs/papers/feddmf_details.md": 2,
    "docs/papers/fedsplit_details.md": 8,
    "docs/papers/felb.md": 1,
    "docs/papers/privacy_claims.md": 2,
}
"""Pages that still use phrases, with how many they may have at most: the numbers may only fall."""
BUILT = {"_build", "generated", "gallery"}
SPAN = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", re.DOTALL)
CODE = re.compile(r"`+[^`]*`+|\{[^{}]*\}|^\s*(?:>>>|\.\.\. ).*|noqa.*")


def prose_of_code(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments and the strings of a Python file, line by line."""
    code = io.StringIO(path.read_text())
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(code.readline):
        if token.type in kinds:
            text = token.string
            # A name, such as a key or an option, is no prose.
            if token.type == tokenize.COMMENT or " " in text:
                for number, line in enumerate(text.split("\n")):
                    yield token.start[0] + number, line


def prose_of_page(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page; code and addresses are blanked."""
    text = SPAN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), path.read_text())
    yield from enumerate(text.split("\n"), start=1)


def texts() -> list[Path]:
    """List what is read: the package, its pages and examples, and the documents of the repository."""
    code = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.pyi"), *(ROOT / "examples").glob("*.py")]
    pages = [path for path in (ROOT / "docs").rglob("*.md") if not BUILT & {*path.parts}]
    return sorted([*code, *pages, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))])


def findings(path: Path) -> list[tuple[int, str, str]]:
    """Return line, matched text and phrase of each hit in a file."""
    lines = prose_of_page(path) if path.suffix == ".md" else prose_of_code(path)
    return [
        (number, found[0], phrase)
        for number, line in lines
        for phrase, pattern in PATTERN.items()
        for found in pattern.finditer(CODE.sub(" ", line))
    ]


@pytest.mark.parametrize("path", texts(), ids=lambda path: str(path.relative_to(ROOT)))
def test_prose_uses_the_terms_of_the_field(path):
    place = str(path.relative_to(ROOT))
    found = [hit for hit in findings(path) if (place, hit[1]) not in EXCEPTIONS]
    assert len(found) <= UNREVISED.get(place, 0), "\n".join(
        f"{place}:{number}: {text!r}; write: {PHRASES[phrase]}" for number, text, phrase in found
    )


def test_every_exception_is_needed():
    hits = {(str(path.relative_to(ROOT)), hit[1]) for path in texts() for hit in findings(path)}
    assert set(EXCEPTIONS) <= hits


def test_phrases_are_found_in_prose_and_not_in_code(tmp_path):
    code = tmp_path / "module.py"
    code.write_text('told = 1  # nobody\n"""Tell whom.\n\n>>> told\n1\n"""\nx = f"a {told} b"\ny = "told"\n')
    assert [(line, text) for line, text, _ in findings(code)] == [(1, "nobody"), (2, "Tell"), (2, "whom")]
    page = tmp_path / "page.md"
    page.write_text("Run `tell`.\n\n```sh\ntell\n```\n\nNobody [reads](whom.md) it.\n")
    assert [(line, text) for line, text, _ in findings(page)] == [(7, "Nobody")]
