"""``make docs`` runs every script of the gallery, and one that fails fails the build."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONF = (ROOT / "docs" / "conf.py").read_text()
SCRIPT = '"""\nA script\n========\n"""\n\nimport matplotlib.pyplot as plt\n\nplt.plot([1, 2])\n'


def test_no_script_escapes_the_pattern():
    scripts = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
    assert len(scripts) >= 12
    assert all(name.startswith("plot_") for name in scripts)
    assert '"filename_pattern": "/plot_"' in CONF
    assert '"examples_dirs": "../examples"' in CONF


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(("last", "code"), [("", 0), ("raise RuntimeError('a gallery script that fails')\n", 2)])
def test_a_script_that_fails_fails_the_build(tmp_path, last, code):
    """The settings are those of the project's own pages, and so is the command of ``make docs``."""
    pytest.importorskip("sphinx_gallery")
    settings = re.search(r"sphinx_gallery_conf = \{.*?^\}", CONF, re.MULTILINE | re.DOTALL)[0]
    docs, examples = tmp_path / "docs", tmp_path / "examples"
    docs.mkdir()
    examples.mkdir()
    (docs / "conf.py").write_text(f'extensions = ["sphinx_gallery.gen_gallery"]\n{settings}\n')
    (docs / "index.rst").write_text("Pages\n=====\n\n.. toctree::\n\n   gallery/index\n")
    (examples / "GALLERY_HEADER.rst").write_text("Gallery\n=======\n")
    (examples / "plot_one.py").write_text(SCRIPT + last)
    command = re.search(r"\$\(RUN\) (-m sphinx.*) docs docs/_build/html", (ROOT / "Makefile").read_text())[1].split()
    done = subprocess.run(
        [sys.executable, *command, "docs", "docs/_build/html"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr
    assert ("a gallery script that fails" in done.stderr) == bool(last)


def test_pictures_of_the_report_are_shown_and_small():
    shown = set(re.findall(r"\{figure\} (report_\w+\.png)", (ROOT / "docs/howto/read_a_result.md").read_text()))
    assert shown == {"report_desk.png", "report_dark.png", "report_phone.png"}
    assert sum((ROOT / "docs/howto" / name).stat().st_size for name in shown) < 300_000
