"""The faults themselves, made on the syntax tree: one change each, the rest of the file as it was.

Left out is what no test could tell: texts, types, `raise` and `assert`, decorators (`frozen`, `slots`) and `strict` of
`zip`, which are assertions, too; whether compiled code is kept and holds a lock, which is a matter of time; and files
that only a card can run, whose tests are in ``tests/gpu``. What is written as ``1 << 20`` is one number. Left out, too,
is how many lines of a matrix are taken at a time, which by design changes no result: the house writes this as
``max(1, SIZE // width)``, SIZE being a number above 100 or a constant named after what it counts (see `SIZES`). What
walks over these lines is not left out.

Written by hand, because the kept tools cannot do this here: mutmut wraps functions, which numba then refuses to
compile, and cosmic-ray runs one command for all files, where a fault here is put to the tests that reach its line.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.BitXor: ast.BitAnd,
}  # fmt: skip


ON_CARDS = (
    "linalg/cuda/transfers.py",
    "engines/local/cuda_graphs.py",
    "boolean/counting_cuda.py",
    "linalg/cuda/launch.py",
    "linalg/cuda/triton_boolean.py",
    "linalg/cuda/triton_nmf.py",
)
"""Files that do nothing on a machine without a card but say that there is none."""

LARGEST = 100
"""Numbers above are sizes of blocks, caps and seconds: one more or less changes nothing that anybody could see."""


SIZES = ("BLOCK", "CELLS", "CHUNK", "STRETCH", "WORDS")
"""How the names of constants end that say how much is held at a time."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One change of one file."""

    path: Path
    line: int
    words: str
    tree: ast.Module
    position: int

    @property
    def source(self) -> str:
        """The whole file with the fault in it."""
        return ast.unparse(self.tree) + "\n"


def number_of_faults(path: Path) -> int:
    """Count the faults of a file without making them."""
    return sum(1 for _ in _spots(ast.parse(path.read_text())))


def fault(path: Path, position: int) -> Fault:
    """Make one fault of a file."""
    tree = ast.parse(path.read_text())
    node, change, words = next(spot for i, spot in enumerate(_spots(tree)) if i == position)
    change()
    return Fault(path, node.lineno, words, ast.fix_missing_locations(tree), position)


def _spots(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, Callable[[], None], str]]:
    """Walk over what can be changed."""
    for node in _walk(tree):
        match node:
            case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
                new = COMPARISONS[type(op)]
                yield node, _set(node, "ops", [new()]), f"{type(op).__name__} -> {new.__name__}"
            case ast.BinOp() if (number := _value(node)) is not None:
                if abs(number) <= LARGEST:
                    yield node, _add_one(node), f"{number:g} -> {number + 1:g}"
            case ast.BinOp(op=op) if type(op) in OPERATORS and not _is_text(node):
                new_op = OPERATORS[type(op)]
                yield node, _set(node, "op", new_op()), f"{type(op).__name__} -> {new_op.__name__}"
            case ast.AugAssign(op=op) if type(op) in OPERATORS:
                new_op = OPERATORS[type(op)]
                yield node, _set(node, "op", new_op()), f"{type(op).__name__}= -> {new_op.__name__}="
            case ast.BoolOp(op=op):
                swapped = ast.Or if isinstance(op, ast.And) else ast.And
                yield node, _set(node, "op", swapped()), f"{type(op).__name__} -> {swapped.__name__}"
            case ast.Constant(value=bool(value)):
                yield node, _set(node, "value", not value), f"{value} -> {not value}"
            case ast.Constant(value=int() | float()) if abs(node.value) <= LARGEST:
                yield node, _set(node, "value", node.value + 1), f"{node.value} -> {node.value + 1}"
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not isinstance(test, ast.Compare):
                negated = ast.UnaryOp(ast.Not(), test)
                yield node, _set(node, "test", negated), "condition negated"
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield node, _set(node, "value", ast.Constant(None)), "returns None"


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.keyword) and node.arg in ("strict", "nogil", "cache"):
        return
    if _at_a_time(node):
        return
    if isinstance(node, ast.ClassDef):
        for child in node.body:
            yield from _walk(child)
        return
    if isinstance(node, (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.AnnAssign, ast.JoinedStr)):
        if not (isinstance(node, ast.AnnAssign) and node.value is not None):
            return
        yield from _walk(node.value)
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        if any(ast.unparse(d).endswith("overload") for d in node.decorator_list):
            return
        for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]:
            yield from _walk(default)
        for child in node.body:
            yield from _walk(child)
        return
    yield node
    if isinstance(node, ast.BinOp) and _value(node) is not None:
        return
    for child in ast.iter_child_nodes(node):
        yield from _walk(child)


def _at_a_time(node: ast.AST) -> bool:
    """Recognise ``max(1, SIZE // width)``, which says how many lines are taken at a time."""
    match node:
        case ast.Call(func=ast.Name(id="max"), args=[ast.Constant(value=int()), ast.BinOp(op=ast.FloorDiv()) as share]):
            size: ast.expr = share
            while isinstance(size, ast.BinOp) and _value(size) is None:
                size = size.left
            return size.id.endswith(SIZES) if isinstance(size, ast.Name) else (_value(size) or 0) > LARGEST
    return False


def _value(node: ast.expr) -> float | None:
    """Work out an expression of numbers alone; None for any other."""
    if not all(
        isinstance(part, (ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop)) for part in ast.walk(node)
    ):
        return None
    found = eval(compile(ast.Expression(node), "", "eval"))
    return found if isinstance(found, int | float) else None


def _add_one(node: ast.BinOp) -> Callable[[], None]:
    def change() -> None:
        node.left, node.op, node.right = copy.copy(node), ast.Add(), ast.Constant(1)

    return change


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(part, (ast.JoinedStr, ast.Constant)) and not _number(part) for part in (node.left, node.right)
    )


def _number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


def _set(node: ast.AST, name: str, value: object) -> Callable[[], None]:
    def change() -> None:
        setattr(node, name, value)

    return change
