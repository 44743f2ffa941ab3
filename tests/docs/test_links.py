"""Links of the pages lead to files and headings that exist, and pages that moved leave a redirect."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BUILT = {"_build", "generated", "gallery"}
TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in TOP), *sorted(p for p in DOCS.rglob("*.md") if not BUILT & {*p.parts})]
LINK = re.compile(r"\]\(([^)\s]+)\)|\{(?:figure|include|literalinclude)\} (\S+)")
CODE = re.compile(r"^```(?!\{).*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,2} (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors that the site gives to the headings of a page: GitHub's and docutils' ones."""
    titles = HEADING.findall(CODE.sub("", page.read_text()))
    bare = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles)
    named = {title: re.sub(r"[^\w\- ]", "", title.strip()).replace(" ", "-") for title in bare}
    return {*named.values(), *(re.sub(r"[^a-z0-9]+", "-", title).strip("-") for title in named)}


def broken(page: Path) -> list[str]:
    found = []
    for plain, figure in LINK.findall(CODE.sub("", page.read_text())):
        target, _, anchor = (plain or figure).partition("#")
        if "://" in target or target.startswith(("mailto:", "fedfactor.")):  # names of the API are checked by the build
            continue
        path = (page.parent / target) if target else page
        if BUILT & {*Path(target).parts}:
            continue  # written by the build, which checks such links itself
        if not path.exists():
            found.append(f"{target} does not exist")
        elif anchor and path.suffix == ".md" and anchor not in anchors(path):
            found.append(f"{target} has no heading #{anchor}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "other.md").write_text("# Other page\n")
    page = tmp_path / "page.md"
    page.write_text("[a](missing.md) [b](other.md#no-heading) [c](other.md#other-page) [d](https://example.org)\n")
    assert broken(page) == ["missing.md does not exist", "other.md has no heading #no-heading"]


def test_pages_that_moved_leave_a_redirect():
    spec = importlib.util.spec_from_file_location("redirects", DOCS / "_ext" / "redirects.py")
    redirects = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(redirects)
    for old, new in redirects.MOVED.items():
        assert not (DOCS / f"{old}.md").exists(), f"{old} is a page again: remove its redirect"
        assert (DOCS / f"{new}.md").exists(), f"{old} leads to {new}, which does not exist"


def test_every_page_is_in_the_navigation():
    listed = set()
    for page in DOCS.rglob("*.md"):
        if not BUILT & {*page.parts}:
            for tree in re.findall(r"^```\{toctree\}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
                names = [line for line in tree.splitlines() if line and not line.startswith(":")]
                listed |= {(page.parent / f"{name}.md").resolve() for name in names}
    assert {page.resolve() for page in PAGES if DOCS in page.parents} - listed == {(DOCS / "index.md").resolve()}
