"""What type checkers and editors are told of the estimators is what the estimators are."""

from __future__ import annotations

import ast

import pytest

from tests.estimators.write_stubs import FOLDER, modules, stub


def classes(text):
    return [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]


@pytest.mark.parametrize("name", modules())
def test_the_stub_is_up_to_date(name):
    path = FOLDER / f"{name}.pyi"
    assert path.exists(), f"{path.name} is missing: run make format."
    # Compared as syntax and without imports, since the formatter breaks lines and sorts imports as it likes.
    written, wanted = ([ast.dump(node) for node in classes(text)] for text in (path.read_text(), stub(name)))
    assert written == wanted, f"{path.name} has fallen behind the declared settings: run make format."


def test_a_stub_has_every_parameter_with_its_type_and_default():
    fnmf = next(node for node in classes(stub("nmf")) if node.name == "FNMF")
    init = next(node for node in fnmf.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    written = {arg.arg: ast.unparse(arg.annotation) for arg in (*init.args.args[1:], *init.args.kwonlyargs)}
    assert written["gamma"] == "float"
    assert written["start"] == "Literal['own', 'common']"
    assert written["engine"] == "str | Engine"
    defaults = dict(zip((arg.arg for arg in init.args.kwonlyargs), init.args.kw_defaults, strict=True))
    assert ast.unparse(defaults["gamma"]) == "0.01"
