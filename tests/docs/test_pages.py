"""What the pages show must run: Python blocks of a page, in order, in one namespace."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "README.md",
    "docs/start.md",
    "docs/ideas/flow.md",
    "docs/howto/read_a_result.md",
    "docs/howto/hospital_csvs.md",
    "docs/howto/single_cells.md",
    "docs/howto/topics.md",
    "docs/howto/ratings.md",
    "docs/howto/yes_no.md",
    "docs/howto/gaps.md",
    "docs/howto/scales.md",
    "docs/howto/rank.md",
    pytest.param("docs/howto/choose_epsilon.md", marks=pytest.mark.slow),
]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
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
