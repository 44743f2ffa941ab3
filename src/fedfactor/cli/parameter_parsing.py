"""From words on the command line to algorithms, files and values."""

from __future__ import annotations

import importlib
import re
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from fedfactor.algorithm_names import algorithm_class, algorithm_names
from fedfactor.cli.console import Debug, console, polite
from fedfactor.core.algorithm import Algorithm
from fedfactor.core.errors import DataError
from fedfactor.core.grid import grid_of
from fedfactor.core.parameters import settings_of_class
from fedfactor.io.file_content import Reading
from fedfactor.io.formats import endings

RATED = ("PooledCF", "PooledCNMF", "FCF", "FedMF", "FedSPLIT")
"""Methods for ratings, which forgive a rank that is not the best: their penalties hold back what is not needed."""

RATING_RANK = 10

_OPTIONS = {"n_init": "--n-init", "rounds": "--rounds", "random_state": "--seed", "missing_values": "--missing"}
"""Parameters of estimators that are options of commands, not settings of an algorithm."""


def chosen_class(name: str) -> type[Algorithm]:
    """Return the algorithm of a name, or the class that ``package.module:Class`` imports.

    Modules are looked up in the working directory, too. Federation terms never import: a coordinator writes them.

    Examples
    --------
    >>> chosen_class("pooled-nmf") is chosen_class("fedfactor.algorithms:PooledNMF")
    True
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        return algorithm_class(name)
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{name!r} cannot be imported: {error}. Write package.module:Class.") from error
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise ValueError(f"{name!r} is not a subclass of fedfactor.core.algorithm.Algorithm.")
    return found


def build(name: str, common: Mapping[str, Any], settings: Sequence[str] = ()) -> Algorithm:
    """Make an algorithm from options that many algorithms share (None: not given) and from ``name=value`` words.

    Examples
    --------
    >>> build("fedavg-nmf", {"n_components": 3, "tol": None}, ["local_steps=2"]).local_steps
    2
    """
    cls = chosen_class(name)
    known = {each.name: each for each in settings_of_class(cls)}
    words: dict[str, str] = {}
    for word in settings:
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"--set {word!r} names no value. Write --set name=value, for example --set local_steps=5.")
        if key in words:
            raise ValueError(f"--set gives {key} twice, {words[key]!r} and {value!r}. Leave one of them out.")
        words[key] = value
    given = {key: value for key, value in common.items() if value is not None}
    odd = [key for key in (*given, *words) if key not in known]
    if odd:
        option = _OPTIONS.get(odd[0])
        say = f"Use {option}" if option else f"Its settings are {', '.join(known)}"
        raise ValueError(f"{cls.__name__} has no setting {odd[0]!r}. {say}.")
    both = [key for key in words if key in given]
    if both:
        option = {"n_components": "-k"}.get(both[0], f"--{both[0]}")
        raise ValueError(f"{option} and --set {both[0]} say the same thing. Leave one of them out.")
    rank = known.get("n_components")
    if rank is not None and rank.default is MISSING and "n_components" not in {*given, *words}:
        if cls.__name__ not in RATED:
            raise ValueError("Say how many components: -k 5, for example. fedfactor rank finds a number that serves.")
        given["n_components"] = RATING_RANK
        typer.echo(f"Note: {RATING_RANK} components, as none were asked for with -k.", err=True)
    return cls(**given | {key: typed(key, value, known[key].kind) for key, value in words.items()})


def settings(
    algorithm: Annotated[str, typer.Argument(help=f"One of {', '.join(algorithm_names())}.", show_default=False)],
    debug: Debug = False,
) -> None:
    """List the settings of an algorithm: what --set takes, what each does, and its default.

    Example: fedfactor settings pooled-nmf
    """
    from rich.table import Table
    from rich.text import Text

    with polite(debug):
        cls = chosen_class(algorithm)
    table = Table("setting", "takes", "default", "what it does", show_lines=True)
    for each in settings_of_class(cls):
        default = "" if each.default is MISSING else str(each.default)
        table.add_row(each.name, Text(each.type_words), default, Text(plain_words(each.words)))
    console().print(table)


def plain_words(words: str) -> str:
    """Take the marks of reStructuredText out of a setting's words.

    Examples
    --------
    >>> plain_words("See :func:`~fedfactor.linalg.alignment.assignment.plan` and ``tol=0``.")
    'See plan and tol=0.'
    """
    words = re.sub(r":\w+:`(~?)([^`]+)`", lambda found: found[2].rpartition(".")[2] if found[1] else found[2], words)
    return words.replace("``", "").replace("**", "")


def typed(key: str, text: str, kind: Any) -> Any:
    """Read a value as the type that a dataclass field declares.

    Examples
    --------
    >>> typed("tol", "1e-3", float), typed("momentum", "no", bool), typed("limit", "none", int | None)
    (0.001, False, None)
    """
    if get_origin(kind) is Literal:
        match = [choice for choice in get_args(kind) if str(choice) == text]
        if match:
            return match[0]
        raise ValueError(f"{key}={text!r} is not known. Use one of {', '.join(map(str, get_args(kind)))}.")
    if get_origin(kind) in (Union, types.UnionType):
        options = get_args(kind)
        if type(None) in options and text.lower() == "none":
            return None
        return _first(key, text, [option for option in options if option is not type(None)])
    if kind is bool:
        if text.lower() in _TRUTH:
            return _TRUTH[text.lower()]
        raise ValueError(f"{key}={text!r} must be true or false.")
    if kind in (int, float, str):
        try:
            return kind(text)
        except ValueError:
            wanted = "a whole number" if kind is int else "a number"
            raise ValueError(f"{key}={text!r} must be {wanted}.") from None
    raise ValueError(f"{key} {NOT_HERE}")


def _first(key: str, text: str, kinds: Iterable[Any]) -> Any:
    mistakes: list[str] = []
    for kind in kinds:
        try:
            return typed(key, text, kind)
        except ValueError as error:
            mistakes.append(str(error))
    known = [said for said in dict.fromkeys(mistakes) if not said.endswith(NOT_HERE)]
    raise ValueError(" Or: ".join(known) or mistakes[0])


NOT_HERE = "cannot be set from the command line, since it has several parts. Use fedfactor.run in Python."

_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def open_parts(
    files: Sequence[Path], reading: Reading, steps: Sequence[str] = (), parts: str | None = None, layout: str = "rows"
) -> Any:
    """Make a federation of files that are opened when first needed, of one file's blocks of rows, or of a grid."""
    from fedfactor.io.read import open_blocks, open_files, shape_of
    from fedfactor.io.split_files import is_grid, open_grid

    if any(path.is_dir() and is_grid(path) for path in files):
        if len(files) > 1:
            raise DataError("A folder with the blocks of a grid stands for the whole matrix: give it alone.")
        if reading != Reading() or steps:
            raise DataError(
                "Blocks of a grid are read as they are: they have no names, ids or missing cells. Leave options such "
                "as --missing, --id and --scale out."
            )
        return open_grid(files[0])
    if parts is not None:
        found = data_files(files)
        if len(found) > 1:
            raise DataError(f"--parts cuts one file, but there are {len(found)}. Give one, or leave --parts out.")
        count = parts_of(parts)
        if isinstance(count, int) and layout == "blocks":
            count = grid_of(count, shape_of(found[0], reading))
        return open_blocks(found[0], count, reading=reading, steps=steps)
    return open_files(data_files(files), reading=reading, steps=steps)


def open_columns(files: Sequence[Path], reading: Reading) -> dict[str, Any]:
    """Read tables whose rows are the same and whose columns differ, each under the name of its file."""
    from fedfactor.io.read import load_shard, owner_name

    return {owner_name(path): load_shard(path, reading=reading) for path in data_files(files)}


def parts_of(word: str) -> int | tuple[int, int]:
    """Read ``--parts``: how many blocks of rows, or how many lines of a grid each way.

    Examples
    --------
    >>> parts_of("4"), parts_of("2x3")
    (4, (2, 3))
    """
    numbers = word.lower().split("x")
    if len(numbers) > 2 or not all(number.isdigit() for number in numbers):
        raise ValueError(f"--parts {word!r} is no number of parts. Use 4, or 2x3 for a grid of two by three.")
    return int(numbers[0]) if len(numbers) == 1 else (int(numbers[0]), int(numbers[1]))


def data_files(paths: Iterable[Path]) -> list[Path]:
    """List the files that were named, and the data files in the folders that were named."""
    from fedfactor.io.read import owner_name

    def readable(path: Path) -> bool:
        try:
            return path.is_file() and not path.name.startswith(".") and bool(owner_name(path))
        except DataError:
            return False

    found: list[Path] = []
    for path in paths:
        inside = [entry for entry in sorted(path.iterdir()) if readable(entry)] if path.is_dir() else [path]
        if not inside:
            raise DataError(f"The folder {path} holds no data file. Use {', '.join(endings())} files.")
        found += inside
    return found
