"""Names of a public module whose definitions lie in other packages, imported when they are first used.

lazy_loader resolves names within one package only; these modules list names of several.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import resolve_name
from pathlib import Path

__all__ = ["lazy_names"]


def lazy_names(module: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a module from the imports in the stub beside it.

    Parameters
    ----------
    module, file : str
        The module's ``__name__`` and ``__file__``. Its stub holds lines ``from .package.module import Name as Name``.
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text())
    package = module if Path(file).stem == "__init__" else module.rpartition(".")[0]
    found = {
        alias.name: resolve_name("." * node.level + (node.module or ""), package)
        for node in ast.walk(stub)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def get(name: str) -> object:
        if name not in found:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(import_module(found[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return get, lambda: sorted(found), sorted(found)
