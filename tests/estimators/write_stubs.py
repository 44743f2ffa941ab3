"""Write the stubs of the estimators, which type checkers and editors read: signatures are made from declared settings.

``make format`` runs it; ``test_stubs.py`` fails when a stub has fallen behind.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import types
from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from fedfactor import estimators
from fedfactor.estimators.signatures import Face

FOLDER = Path(inspect.getfile(estimators)).parent
HEAD = "# Written by `make format` from the declared settings. Change those, not this.\n"
KNOWN = {
    "Any": "typing",
    "Literal": "typing",
    "Self": "typing",
    "Mapping": "collections.abc",
    "Sequence": "collections.abc",
    "Engine": "fedfactor.engines.engine",
}


def modules() -> list[str]:
    """Name the modules whose estimators have made signatures."""
    offered = [getattr(estimators, name) for name in estimators.__all__]
    return sorted(
        {each.__module__.rpartition(".")[2] for each in offered if inspect.isclass(each) and issubclass(each, Face)}
    )


def stub(name: str) -> str:
    """Write the stub of one module."""
    module = importlib.import_module(f"fedfactor.estimators.{name}")
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    body = [_class(getattr(module, node.name), node) for node in tree.body if isinstance(node, ast.ClassDef)]
    text = "\n\n".join(body)
    return HEAD + "\n".join(_imports(tree, text)) + "\n\n" + text + "\n"


def _imports(tree: ast.Module, text: str) -> Iterator[str]:
    used = set(re.findall(r"\w+", text))
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (f"import {ast.unparse(each)}" for each in node.names if (each.asname or each.name) in used)
    found = {name: room for name, room in KNOWN.items() if name in used}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
            found |= {alias.name: node.module for alias in node.names if (alias.asname or alias.name) in used}
    for room in sorted(set(found.values())):
        yield f"from {room} import {', '.join(sorted(name for name in found if found[name] == room))}"


def _class(cls: type, node: ast.ClassDef) -> str:
    lines = [f"class {cls.__name__}({', '.join(map(ast.unparse, node.bases))}):"]
    made = issubclass(cls, Face) and "_declared" in vars(cls)
    declared = vars(cls)["_declared"] if made else ()
    inherited = {each.name for base in cls.__mro__[1:] for each in vars(base).get("_offered", ())}
    lines += [f"    {each.name}: {annotation(each.kind)}" for each in declared if each.name not in inherited]
    lines += [f"    {name}: {kind}" for name, kind in _attributes(node).items()]
    if made:
        lines.append(f"    def __init__({', '.join(['self', *_parameters(declared)])}) -> None: ...")
    for method in node.body:
        # Private methods are nobody's to call, and would make a stub of every change within.
        if isinstance(method, ast.FunctionDef) and (method.name == "__init__" or not method.name.startswith("_")):
            plain = ast.FunctionDef(
                method.name, method.args, [ast.Expr(ast.Constant(...))], method.decorator_list, method.returns
            )
            lines.append("    " + ast.unparse(ast.fix_missing_locations(plain)).replace("\n", "\n    "))
    return "\n".join([*lines, *(["    ..."] if len(lines) == 1 else [])])


def _attributes(node: ast.ClassDef) -> dict[str, str]:
    """Find what the methods of a class give it."""
    found: dict[str, str] = {}
    for part in ast.walk(node):
        targets = (
            part.targets if isinstance(part, ast.Assign) else [part.target] if isinstance(part, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                found[target.attr] = ast.unparse(part.annotation) if isinstance(part, ast.AnnAssign) else "Any"
    return found


def _parameters(declared: tuple[Any, ...]) -> Iterator[str]:
    for position, each in enumerate(declared):
        if position == 1:
            yield "*"
        default = "" if each.default is MISSING else f" = {each.default!r}"
        yield f"{each.name}: {annotation(each.kind)}{default}"


def annotation(kind: Any) -> str:
    """Write a type as it stands in source."""
    if kind is Any or kind is Ellipsis:
        return "Any" if kind is Any else "..."
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, inside))}]"
    if origin in (Union, types.UnionType):
        return " | ".join(map(annotation, inside))
    if kind is type(None):
        return "None"
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(annotation, inside))}]"
    return kind.__name__


if __name__ == "__main__":
    for name in modules():
        (FOLDER / f"{name}.pyi").write_text(stub(name))
