"""Pages generated from the package: the API by topic, and the tables of algorithms."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
from collections.abc import Iterator
from pathlib import Path

import fedfactor
from fedfactor.algorithm_names import command_name
from fedfactor.cli.console import EXIT_CODES
from fedfactor.cli.parameter_parsing import plain_words
from fedfactor.core.parameters import settings_of_class

# Sizes that no parameter has by default, so that a shape in a message can be read back as letters.
K, M, N = 7, 1009, 2003
SYMBOLS = {K: "k", M: "m", N: "n"}


# Topic → the packages whose top-level classes belong to it, in the order of the index.
TOPICS = {
    "Non-negative matrix factorization": "nmf",
    "Distributed and sketched NMF": "nmf.distributed",
    "PCA and SVD": "decomposition",
    "Boolean matrix factorization": "boolean",
    "Recommenders": "recommend",
    "Reading data": "io.read core.client_data",
    "Runs and engines": "engines core.run",
    "Evaluation and selection": "evaluation",
    "Privacy": "privacy",
    "Saved models": "saved_models",
    "Errors": "core.errors",
}
# Public modules beside the top level, and what authors of algorithms import.
MODULES = "data datasets selection metrics plots saved engines privacy aggregation audit flower".split()
CONTRACT = "core.algorithm core.pytree core.wire core.parameters core.transforms".split()
FOR_AUTHORS = ["algorithms", "testing", *CONTRACT, "linalg.nnls", "linalg.products"]


def write(folder: Path) -> None:
    """Write the pages of the API and the tables of algorithms; files that did not change keep their date."""
    folder.mkdir(parents=True, exist_ok=True)
    topics = topics_of_names()
    pages = {f"fedfactor.{name}.md": object_page(f"fedfactor.{name}") for names in topics.values() for name in names}
    pages |= {f"fedfactor.{name}.md": module_page(f"fedfactor.{name}") for name in (*MODULES, *FOR_AUTHORS)}
    pages["index.inc"] = api_index(topics)
    pages["algorithms_table.inc"] = algorithms_table()
    pages["settings_tables.inc"] = settings_tables()
    pages["errors_table.inc"] = errors_table()
    pages["exit_codes.inc"] = exit_codes()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    for path in folder.iterdir():
        if path.name not in pages:
            path.unlink()


def topics_of_names() -> dict[str, list[str]]:
    """Group the public names of the top level by the package that defines them; the longest matching path decides."""
    where = {path: topic for topic, paths in TOPICS.items() for path in paths.split()}
    found: dict[str, list[str]] = {topic: [] for topic in TOPICS}
    for name in sorted(fedfactor.__all__, key=str.lower):
        value = getattr(fedfactor, name)
        if inspect.ismodule(value) or name.startswith("_"):
            continue
        home = value.__module__.removeprefix("fedfactor.")
        path = max((path for path in where if f"{home}.".startswith(f"{path}.")), key=len)
        found[where[path]].append(name)
    return found


def api_index(topics: dict[str, list[str]]) -> str:
    """Write the lists of pages by topic, with the first sentence of each docstring in the reader's reach."""
    text = ""
    for topic, names in topics.items():
        text += toctree(topic, names)
    return text + toctree("Modules", MODULES) + toctree("For authors of algorithms", FOR_AUTHORS)


def toctree(title: str, names: list[str]) -> str:
    """Write one section of the index: a table of names and summaries, and the entries of the sidebar."""
    rows = "".join(f"| [`fedfactor.{name}`](generated/fedfactor.{name}.md) | {summary(name)} |\n" for name in names)
    entries = "".join(f"generated/fedfactor.{name}\n" for name in names)
    table = f"## {title}\n\n| name | summary |\n|---|---|\n{rows}\n"
    return f"{table}```{{toctree}}\n:hidden:\n:caption: {title}\n\n{entries}```\n\n"


def summary(name: str) -> str:
    """Return the first paragraph of a docstring as one line of a table."""
    text = (inspect.getdoc(public(f"fedfactor.{name}")) or "").partition("\n\n")[0]
    return " ".join(text.split()).replace("|", "\\|").replace("``", "`").replace("*", "\\*")


def public(path: str) -> object:
    """Return the object or module of a public path; a module of an extra that is not installed has no members."""
    value: object = fedfactor
    parts = path.split(".")[1:]
    for position, name in enumerate(parts):
        try:
            value = getattr(value, name)
        except AttributeError:
            value = importlib.import_module(".".join(["fedfactor", *parts[: position + 1]]))
    return value


def object_page(path: str) -> str:
    """Write the page of one class or function."""
    return f"# {path.rpartition('.')[2]}\n\n```{{eval-rst}}\n{directive(path)}```\n"


def directive(path: str) -> str:
    """Write the directive that documents a public name; estimators show inherited methods, too."""
    if not inspect.isclass(public(path)):
        return f".. autofunction:: {path}\n" if callable(public(path)) else f".. autodata:: {path}\n"
    return f".. autoclass:: {path}\n   :members:\n   :inherited-members: BaseEstimator, Exception, tuple\n"


def module_page(path: str) -> str:
    """Write the page of a module: its public names, each under its public path."""
    module = public(path)
    names = getattr(module, "__all__", None)
    text = f"# {path}\n\n"
    if path.startswith(("fedfactor.core", "fedfactor.linalg")):
        return f"{text}```{{eval-rst}}\n.. automodule:: {path}\n   :members:\n```\n"
    text += f"```{{eval-rst}}\n.. automodule:: {path}\n```\n"
    for name in names or ():
        first = first_path(f"{path}.{name}")
        if first == f"{path}.{name}":
            text += f"\n```{{eval-rst}}\n{directive(first)}```\n"
        else:
            page = first if first.count(".") == 1 else first.rpartition(".")[0]
            text += f"\n* `{name}`: see [`{first}`]({page}.md)\n"
    return text


def first_path(path: str) -> str:
    """Return the path under which an object is documented, where several modules export it."""
    name = path.rpartition(".")[2]
    for module in ("fedfactor", *(f"fedfactor.{each}" for each in (*MODULES, *FOR_AUTHORS))):
        if getattr(public(module), name, None) is public(path):
            return f"{module}.{name}"
    return path


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
        text += "| parameter | type | default | meaning |\n|---|---|---|---|\n"
        for each in settings_of_class(cls):
            default = "" if each.default is dataclasses.MISSING else f"`{each.default!r}`"
            cells = [f"`{each.name}`", f"`{each.type_words}`", default, plain_words(each.words)]
            text += "| " + " | ".join(cell.replace("|", "\\|").replace("*", "\\*") for cell in cells) + " |\n"
    return text


def exit_codes() -> str:
    """Write the exit codes of the command line, as the command line declares them."""
    rows = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    return f"| exit code | meaning |\n|---|---|\n{rows}"


def errors_table() -> str:
    """Write the errors and warnings of the package, read from its source, so that no optional dependency is needed."""
    lines = ["| class | also a | raised when |", "|---|---|---|"]
    found: dict[str, tuple[str, str, str]] = {}
    root = Path(fedfactor.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith(("Error", "Warning", "Unavailable")):
                bases = [ast.unparse(base) for base in node.bases]
                if any(base.endswith(("Error", "Warning", "Exception")) for base in bases):
                    home = ".".join(("fedfactor", *path.relative_to(root).with_suffix("").parts))
                    summary = (ast.get_docstring(node) or "").partition("\n\n")[0]
                    found[node.name] = (home, ", ".join(f"`{base}`" for base in bases), " ".join(summary.split()))
    for name, (home, bases, summary) in sorted(found.items()):
        where = f"[`{name}`](../api/generated/fedfactor.{name}.md)" if name in fedfactor.__all__ else f"`{home}.{name}`"
        lines.append(f"| {where} | {bases} | {summary} |")
    return "\n".join(lines) + "\n"


def algorithms() -> Iterator[type]:
    """Yield the algorithms that `fedfactor.algorithms` lists, by subject: recommended methods first."""
    if importlib.util.find_spec("fedfactor.algorithms") is None:
        return
    module = importlib.import_module("fedfactor.algorithms")
    found = [getattr(module, name) for name in getattr(module, "__all__", [])]
    steps = [each for each in found if inspect.isclass(each) and hasattr(each, "client_step")]
    subjects = list(TOPICS.values())

    def place(cls: type) -> tuple[bool, int, str]:
        home = f"{cls.__module__.removeprefix('fedfactor.')}."
        subject = max((path for path in subjects if home.startswith(f"{path}.")), key=len, default="")
        return not cls.__name__.startswith("Pooled"), subjects.index(subject) if subject else 99, cls.__name__

    yield from sorted(filter(dataclasses.is_dataclass, steps), key=place)


def messages(cls: type) -> dict:
    """Return the messages that an algorithm declares with default parameters."""
    from fedfactor.core.algorithm import Meta

    fields = {field.name for field in dataclasses.fields(cls)}
    algorithm = cls(**({"n_components": K} if "n_components" in fields else {}))
    return algorithm.messages(Meta(n_features=M, clients=("a", "b", "c"), n_rows=N))


def shape(sizes: tuple[int, ...]) -> str:
    """Write a shape in letters: ``(7, 1009)`` is ``k × m``; a scalar is a number."""
    return " × ".join(SYMBOLS.get(size, str(size)) for size in sizes) or "number"
