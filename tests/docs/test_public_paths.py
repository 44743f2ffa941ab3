"""Every path below ``fedfactor.`` that the documentation's code uses works after a bare ``import fedfactor``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT = {"_build", "generated", "gallery"}
TEXTS = [
    path
    for path in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "docs/howto").glob("*.py")),
    )
    if not BUILT & {*path.parts}
]
DOTTED = re.compile(r"(?<![\w./\"'-])fedfactor((?:\.[A-Za-z_]\w*)+)")
# Imports name modules, links of Sphinx name places in the pages, and words on a command line name files.
NOT_AN_EXPRESSION = re.compile(
    r"\]\(fedfactor[^)]*\)|^.*(?:from|import) fedfactor\..*$|python -m fedfactor\S*", re.MULTILINE
)
FENCED = re.compile(r"^```(?:python|pycon)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")

RESOLVE = """
import json, sys
import fedfactor
broken = {}
for path in json.load(sys.stdin):
    value = fedfactor
    for name in path.split(".")[1:]:
        try:
            value = getattr(value, name)
        except AttributeError as error:
            broken[path] = str(error)
            break
        except ImportError:
            break  # an extra that is not installed here
print(json.dumps(broken))
"""


def code_of(path):
    text = NOT_AN_EXPRESSION.sub("", path.read_text())
    return text if path.suffix == ".py" else "\n".join([*FENCED.findall(text), *SPAN.findall(text)])


def documented_paths():
    return sorted({f"fedfactor{each[1].rstrip('.')}" for path in TEXTS for each in DOTTED.finditer(code_of(path))})


def resolve(paths):
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE],
        input=json.dumps(paths),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return json.loads(done.stdout)


def test_every_documented_path_works_after_a_bare_import():
    paths = documented_paths()
    assert len(paths) > 25
    assert resolve(paths) == {}


@pytest.mark.parametrize(
    "name", ["plots.panels", "data.open_files", "selection.compare", "metrics.relative_error", "saved.load"]
)
def test_a_path_needs_no_import_of_its_module(name):
    assert resolve([f"fedfactor.{name}"]) == {}


def test_a_path_that_is_not_there_is_found():
    assert set(resolve(["fedfactor.no_such_name", "fedfactor.plots.no_such_plot"])) == {
        "fedfactor.no_such_name",
        "fedfactor.plots.no_such_plot",
    }
