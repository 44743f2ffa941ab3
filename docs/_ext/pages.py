"""Pages written from the package as it is: the API by room, and the table of algorithms."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import fedfactor
from fedfactor.algorithm_names import command_name
from fedfactor.cli.parameter_parsing import plain_words
from fedfactor.core.parameters import settings_of_class

# Sizes that no setting has by chance, so that a shape in a message can be read back as letters.
K, M, N = 7, 1009, 2003
SYMBOLS = {K: "k", M: "m", N: "n"}


def write(folder: Path) -> None:
    """Write one page per room and the table of algorithms; files that did not change keep their date."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {f"{room}.md": api_page(room, modules) for room, modules in rooms().items()}
    pages["algorithms_table.inc"] = algorithms_table()
    pages["settings_tables.inc"] = settings_tables()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    for path in folder.iterdir():
        if path.name not in pages:
            path.unlink()


def rooms() -> dict[str, list[str]]:
    """Room → public modules in it, found without importing them."""
    found: dict[str, list[str]] = {}
    for module in pkgutil.walk_packages(fedfactor.__path__, "fedfactor."):
        parts = module.name.split(".")
        if not any(part.startswith("_") for part in parts):
            found.setdefault(parts[1], []).append(module.name)
    return found


def api_page(room: str, modules: list[str]) -> str:
    """Write the page of one room: every public name of every module, from the docstrings."""
    body = ""
    for name in modules:
        title = "" if name == modules[0] else f"\n## {name.rpartition('.')[2]}\n\n"
        # What a package offers is written where it is defined, so its own entry is its docstring alone.
        package = importlib.util.find_spec(name).submodule_search_locations is not None
        members = "" if package else "   :members:\n"
        body += f"{title}```{{eval-rst}}\n.. automodule:: {name}\n{members}```\n"
    return f"# fedfactor.{room}\n\n{body}"


def algorithms_table() -> str:
    """Write algorithm × message × uplink × estimator × command-line name, asking each algorithm what it sends."""
    lines = [
        "| algorithm | message | leaves | uplink | estimator | command line |",
        "|---|---|---|---|---|---|",
    ]
    for cls in algorithms():
        estimator = f"`fedfactor.{cls.__name__}`" if hasattr(fedfactor, cls.__name__) else "none"
        command = f"`{command_name(cls.__name__)}`"
        first = f"`{cls.__name__}`"
        for message, spec in messages(cls).items():
            leaves = ", ".join(f"{path}: {shape(leaf.shape)}" for path, leaf in spec.items())
            uplink = getattr(message, "uplink", "(download)")
            lines.append(f"| {first} | `{message.__name__}` | {leaves} | {uplink} | {estimator} | {command} |")
            first = estimator = command = ""
    return "\n".join(lines) + "\n"


def settings_tables() -> str:
    """Write one table for each algorithm: its settings as they are declared."""
    text = ""
    for cls in algorithms():
        text += f"\n## {cls.__name__}\n\n`--algorithm {command_name(cls.__name__)}`\n\n"
        text += "| setting | takes | default | what it does |\n|---|---|---|---|\n"
        for each in settings_of_class(cls):
            default = "" if each.default is dataclasses.MISSING else f"`{each.default!r}`"
            cells = [f"`{each.name}`", f"`{each.type_words}`", default, plain_words(each.words)]
            text += "| " + " | ".join(cell.replace("|", "\\|").replace("*", "\\*") for cell in cells) + " |\n"
    return text


def algorithms() -> Iterator[type]:
    """Every algorithm that the room lists in its stub."""
    if importlib.util.find_spec("fedfactor.algorithms") is None:
        return
    room = importlib.import_module("fedfactor.algorithms")
    for name in sorted(getattr(room, "__all__", [])):
        value = getattr(room, name)
        if inspect.isclass(value) and dataclasses.is_dataclass(value) and hasattr(value, "client_step"):
            yield value


def messages(cls: type) -> dict:
    """What an algorithm announces in its default configuration."""
    from fedfactor.core.algorithm import Meta

    fields = {field.name for field in dataclasses.fields(cls)}
    algorithm = cls(**({"n_components": K} if "n_components" in fields else {}))
    return algorithm.messages(Meta(n_features=M, clients=("a", "b", "c"), n_rows=N))


def shape(sizes: tuple[int, ...]) -> str:
    """Write a shape in letters: ``(7, 1009)`` is ``k × m``; a scalar is a number."""
    return " × ".join(SYMBOLS.get(size, str(size)) for size in sizes) or "number"
