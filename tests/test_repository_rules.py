"""Rules of the repository that no linter checks, from the syntax tree of every file in src."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "src").rglob("*.py"))
PAGES = [
    path
    for pattern in (
        "*.md",
        "*.cff",
        "Makefile",
        "*.toml",
        "*.txt",
        ".ci/run",
        "docs/**/*.md",
        "src/**/*.py",
        "src/**/*.pyi",
    )
    for path in sorted(ROOT.glob(pattern))
    if path.suffix in {".md", ".cff", ".toml", ".txt", ".py", ".pyi", ""} and "_build" not in path.parts
]
# Peers are not trusted, so nothing that runs code found in bytes: these modules, these calls.
MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
CALLS = {"eval", "exec", "compile", "__import__"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK|WIP)\b")
# The head of an absolute path on somebody's machine, not preceded by a letter (a relative path or an address).
MACHINE = re.compile(r"(?<![\w.}])/(home|root|work|Users|mnt|opt)/[\w.]|[A-Z]:\\\\?Users")


def unsafe(source):
    """What in a module could run code it was sent, as 'line: what'."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [f"{node.lineno}: {n.name}" for n in names if n.name.partition(".")[0] in MODULES]
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in MODULES:
                found.append(f"{node.lineno}: {module}")
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                found.append(f"{node.lineno}: {name}()")
            case ast.keyword(arg="allow_pickle", value=value) if not (
                isinstance(value, ast.Constant) and value.value is False
            ):
                found.append(f"{value.lineno}: allow_pickle")
    return found


def private(source):
    """What a module imports under a private name, as 'line: name'."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                imported = [each.name for each in names]
            case ast.ImportFrom(module=module, names=names):
                imported = [f"{module or ''}.{each.name}" for each in names]
            case _:
                continue
        found += [f"{node.lineno}: {name}" for name in imported if re.search(r"(^|\.)_(?!_)", name)]
    return found


def patched(source):
    """What a module changes in the modules and classes of other packages, as 'line: name.attribute'."""
    nodes = list(ast.walk(ast.parse(source)))
    others = {
        (each.asname or each.name).partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)
        for each in node.names
        if not getattr(node, "module", each.name).startswith("fedfactor")
    }
    found = []
    for node in nodes:
        match node:
            case ast.Attribute(value=value, attr=name, ctx=ast.Store() | ast.Del()):
                target = value
            case ast.Call(func=ast.Name(id="setattr" | "delattr" as name), args=[target, *_]):
                pass
            case _:
                continue
        while isinstance(target, ast.Attribute):
            target = target.value
        if isinstance(target, ast.Name) and target.id in others:
            found.append(f"{node.lineno}: {target.id}.{name}")
    return found


@pytest.mark.parametrize(
    "source", ["import flwr._x", "from flwr._x import y", "from flwr import _x", "from ._x import y"]
)
def test_private_imports_are_recognised(source):
    assert private(source)


@pytest.mark.parametrize(
    "source",
    [
        "import ssl; ssl.match = None",
        "import os.path as p; p.join = None",
        "from flwr import Server\nServer.fit = None",
        "import flwr; setattr(flwr.server, 'fit', None)",
        "import flwr; del flwr.server.fit",
        "import numpy as np; np.x += 1",
    ],
)
def test_patches_are_recognised(source):
    assert patched(source)


@pytest.mark.parametrize(
    "source",
    [
        "from __future__ import annotations",
        "import __main__",
        "import ssl; self.ssl = ssl.x",
        "from fedfactor.a import b\nb.c = 1",
        "import os; os.environ['A'] = 'b'",
    ],
)
def test_public_imports_and_own_attributes_are_neither(source):
    assert private(source) + patched(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import os, pickle as p",
        "from cloudpickle import loads",
        "eval('1')",
        "def f(x):\n    exec(x)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
    ],
)
def test_the_search_finds_what_it_looks_for(source):
    assert unsafe(source)


@pytest.mark.parametrize("source", ["np.load(path, allow_pickle=False)", "model.eval()", "re.compile('x')", "'pickle'"])
def test_the_search_leaves_the_innocent_alone(source):
    assert unsafe(source) == []


@pytest.mark.parametrize("text", ['open("/home/ann/x")', "see /work/main", "(/root/.cache)", r"C:\\Users\\ann"])
def test_machine_paths_are_recognised(text):
    assert MACHINE.search(text)


@pytest.mark.parametrize("text", ["src/home/x", "https://a.b/home/x", "docs/work/x", "./opt/x", "X/U"])
def test_other_paths_are_not(text):
    assert not MACHINE.search(text)


def test_there_is_something_to_read():
    assert FILES
    assert ROOT / "README.md" in PAGES


def broken(files, rule):
    """The files that break a rule, each with what breaks it: one test tells of all of them."""
    found = {path.relative_to(ROOT).as_posix(): rule(path.read_text()) for path in files}
    return {name: what for name, what in found.items() if what}


@pytest.mark.slow
def test_no_file_runs_code_that_it_was_sent():
    assert broken(FILES, unsafe) == {}


@pytest.mark.slow
def test_no_file_imports_private_names():
    assert broken(FILES, private) == {}


@pytest.mark.slow
def test_no_file_patches_another_package():
    """The warnings module documents this assignment as the way to replace its output."""
    found = broken(FILES, lambda text: [line for line in patched(text) if "warnings.showwarning" not in line])
    assert found == {}


def test_every_file_is_finished():
    assert broken(FILES, UNFINISHED.findall) == {}


def test_no_page_names_a_path_of_a_machine():
    assert broken(PAGES, lambda text: [line for line in text.splitlines() if MACHINE.search(line)]) == {}


def test_the_files_that_a_newcomer_is_sent_to_are_there():
    """Every file that the first pages name exists; my_nmf is the reader's own."""
    named = {
        name
        for page in ("README.md", "CONTRIBUTING.md")
        for name in re.findall(r"`([\w./-]+/[\w.-]+\.\w+)`", (ROOT / page).read_text())
        if "my_nmf" not in name
    }
    assert len(named) > 10
    assert sorted(name for name in named if not any((ROOT / at / name).exists() for at in ("", "src/fedfactor"))) == []
