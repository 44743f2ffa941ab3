"""What the pages show must run: Python blocks of a page, in order, in one namespace."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {
    "docs/howto/add_an_algorithm.md": "a line of a stub; the file that the page shows is run by test_add_an_algorithm",
    "docs/howto/gpu.md": "needs a GPU; tests/gpu has the same calls",
    "docs/howto/dask.md": "needs a cluster; tests/dask has the same calls",
    "docs/howto/mpi.md": "needs ranks; tests/mpi has the same calls",
}
"""Pages whose blocks cannot run here, and why."""
BUILT = {"_build", "generated", "gallery"}
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if not BUILT & {*path.parts} and BLOCK.search(path.read_text())
]


def test_what_does_not_run_here_still_exists():
    assert set(ELSEWHERE) <= set(PAGES)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE])
def test_blocks_run_and_show_what_they_say(page):
    namespace, failures = {}, []
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    for number, block in enumerate(blocks):
        if ">>>" not in block:
            exec(compile(block, f"{page}, block {number}", "exec"), namespace)
            continue
        test = doctest.DocTestParser().get_doctest(block, namespace, f"{page}, block {number}", page, 0)
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=failures.append, clear_globs=False)
        namespace |= test.globs
    assert not failures, "".join(failures)
