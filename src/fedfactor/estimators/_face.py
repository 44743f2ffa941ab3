"""How an estimator gets its signature and its docstring: from its algorithm's settings, and from those of every run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, Field, replace
from inspect import cleandoc
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar, Self, TypeVar, get_type_hints

import numpy as np
from sklearn.base import BaseEstimator

from fedfactor.core.docstrings import completed, join_sections, split_entries, split_sections
from fedfactor.core.federation import Federation, Missing
from fedfactor.core.protocol import Algorithm
from fedfactor.core.rows_on_card import Storage, check_device
from fedfactor.core.run import Run
from fedfactor.core.settings import (
    KEY,
    Setting,
    check_settings,
    explicit_init,
    offer_former_names,
    renamed,
    setting,
    settings_of_class,
)
from fedfactor.engines.base import Engine
from fedfactor.engines.callbacks import watcher
from fedfactor.engines.run import run
from fedfactor.privacy.dp import refuse_repeats

T = TypeVar("T", bound=type)


def offers_settings(cls: T) -> T:
    """Collect the settings that a class declares in its body, for the faces that inherit from it."""
    kinds = get_type_hints(cls)
    found = {name: value for name, value in vars(cls).items() if isinstance(value, Field) and KEY in value.metadata}
    cls._offered = tuple(Setting(name, kinds[name], each.default, each.metadata[KEY]) for name, each in found.items())
    for name in found:
        delattr(cls, name)  # an estimator's attributes are set when it is made
    return cls


class Face(BaseEstimator):
    """An estimator whose ``__init__`` was made from declared settings."""

    _method: ClassVar[type[Algorithm]]
    _declared: ClassVar[tuple[Setting, ...]] = ()
    _own: ClassVar[tuple[Setting, ...]] = ()
    _example: ClassVar[str]
    _how: ClassVar[str]
    """Settings of the example."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        for name, method in vars(cls).items():
            if isinstance(method, FunctionType) and not name.startswith("_"):
                theirs = (vars(base)[name] for base in cls.__mro__[1:] if _is_ours(base) and name in vars(base))
                method.__doc__ = completed(method.__doc__ or "", getattr(next(theirs, None), "__doc__", None) or "")

    def __init__(self, *given: Any, **named: Any) -> None:
        raise TypeError(f"{type(self).__name__} is no estimator by itself: put @face(...) above its class.")

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as in scikit-learn; names that a parameter had before are taken with a warning.

        Parameters
        ----------
        **params
            By name.

        Returns
        -------
        self
        """
        return super().set_params(**renamed(type(self).__name__, params, list(self._declared), values=False))

    def _place(self) -> dict[str, Any]:
        """Say where rows are worked on, where that can be chosen."""
        return {}

    def _algorithm(self) -> Algorithm:
        """Make the algorithm; refuse settings, of it and of this estimator, that their declarations do not allow."""
        algorithm = self._method(**{each.name: getattr(self, each.name) for each in settings_of_class(self._method)})
        check_settings(algorithm)
        check_settings(self, list(self._own))
        return algorithm


@offers_settings
class EveryRun:
    """What every run takes."""

    rounds: int | None = setting("Rounds at most; by default {rounds}.", default=None, at_least=1)
    n_clients: int = setting(
        "Owners to whom {rows} are dealt at random when neither {data} nor ``groups`` says who owns them.",
        default=1,
        at_least=1,
    )
    engine: str | Engine = setting("How messages travel.", default="local")
    privacy: Any = setting(
        'What protects uploads on their way: ``"secure-sum"``, :func:`fedfactor.dp`, ``"median"``; see '
        ":func:`fedfactor.run`. ``run_.privacy`` says who could see what.",
        default=None,
        shown="str, dp(...), transform, or tuple of these",
    )
    random_state: Any = setting(
        "Seed of every stream; None draws one, kept in ``run_.seed``.",
        default=None,
        shown="int, RandomState, Generator or None",
    )
    verbose: int | bool
    callbacks: Any
    checkpoint: Any
    _place: Callable[[], dict[str, Any]]

    def _run(self, algorithm: Algorithm, federation: Federation, engine: Any, seed: int) -> Run:
        watch = (*watcher(int(self.verbose), type(self).__name__), *self.callbacks)
        # Every start has a folder of its own: they differ in their seed.
        folder = None if self.checkpoint is None else Path(self.checkpoint) / f"seed-{seed}"
        return run(
            algorithm,
            federation,
            engine=engine,
            rounds=self._exchanges(),
            seed=seed,
            privacy=self.privacy,
            callbacks=watch,
            checkpoint=folder,
            **self._place(),
        )

    def _exchanges(self) -> int | None:
        return self.rounds


@offers_settings
class OnCard:
    """Where rows are worked on."""

    device: str | None = setting(
        'Where rows are worked on: ``"cpu"``, ``"cuda"`` (``"cuda:1"``: the second card); None: where they are. They '
        "go to the card in blocks; what does not fit is sent again in every round. Results come back to where X is.",
        default=None,
        check=False,
        shown='"cpu" or "cuda"',
    )
    storage: Storage | None = setting(
        'How a card keeps dense rows; None: in single precision. ``"bfloat16"`` halves memory and traffic and rounds '
        "every cell by half a per cent at most (see the page on cards).",
        default=None,
    )

    def _place(self) -> dict[str, Any]:
        check_device(self.device, self.storage)
        return {"device": self.device, "storage": self.storage}


@offers_settings
class MissingCells:
    """What marks cells that nobody observed."""

    missing_values: Missing = setting(
        "None: NaN is an error and unstored sparse cells are zero. NaN or another number: such cells are missing. "
        '``"unstored"``: only the stored cells of sparse matrices were observed.',
        default=None,
        check=False,
        shown='nan, number or "unstored"',
    )


@offers_settings
class Progress:
    """What is told while a run goes on."""

    verbose: int | bool = setting(
        "1 or more: a bar on a terminal, lines in the log elsewhere.", default=0, at_least=0, shown="int"
    )
    callbacks: Any = setting(
        "Called after each round with its record; one that returns True ends the run, which keeps what was reached. "
        "Objects may have ``on_start``, ``on_round`` and ``on_end``.",
        default=(),
        check=False,
        shown="sequence of functions or callbacks",
    )
    checkpoint: Any = setting(
        "A folder in which the run is kept after each round. The same ``fit``, with the same ``random_state``, goes on "
        "after it was broken off.",
        default=None,
        check=False,
        shown="path",
    )


@offers_settings
class Restarts:
    """How often a run is begun."""

    n_init: int | None = setting(
        "Starts; the one with the least summed error is kept. By default 1; for ``PooledNMF`` with ``n_private`` 6. "
        "With ``dp(...)`` only one: a budget is that of one run.",
        default=None,
        at_least=1,
    )
    privacy: Any

    def _run(self, algorithm: Algorithm, federation: Federation, engine: Any, seed: int) -> Run:
        """Run from several starts; the summed error alone, which adds up over owners, says which one is kept."""
        if self.n_init is not None:
            refuse_repeats(self.privacy, self.n_init, f"n_init={self.n_init}")
        found = [
            super(Restarts, self)._run(each, federation, engine, restart_seed(seed, start))  # pyright: ignore[reportAttributeAccessIssue]
            for start, each in enumerate(self._starts(algorithm))
        ]
        return min(found, key=lambda run: float(run.measured.score.sse))

    def _starts(self, algorithm: Algorithm) -> list[Algorithm]:
        """Return what is run, start by start."""
        return [algorithm] * (self.n_init or 1)


def restart_seed(seed: int, start: int) -> int:
    """Return the seed of a restart: the first is the seed itself, so that one start is what it always was."""
    if start == 0:
        return seed
    return int(np.random.SeedSequence([seed, start]).generate_state(1, np.uint64)[0] >> np.uint64(1))


@offers_settings
class RatingScale:
    """Between which ratings predictions lie."""

    scale: tuple[float, float] | None = setting(
        "The lowest and the highest rating, to which predictions are clipped; by default the smallest and the largest "
        "in ``fit``.",
        default=None,
        shown="(low, high)",
    )


def face(
    method: type[Algorithm] | None = None, *, n_components: int = 2, without: tuple[str, ...] = ()
) -> Callable[[T], T]:
    """Make a class an estimator: its parameters are the settings of an algorithm, and those that its bases offer.

    Parameters
    ----------
    method : type, optional
        The algorithm; without one the class declares its settings itself.
    n_components : int, default=2
        The rank when none is given, where the algorithm has no default.
    without : tuple of str
        Settings of the bases that this estimator does not have.

    Returns
    -------
    decorator
        It adds ``__init__`` with an explicit signature, and writes the sections "Parameters" and "Attributes" of the
        docstring: the latter from the docstrings of the bases, whose entries the class's own replace.
    """

    def make(cls: T) -> T:
        offers_settings(cls)
        own = [each for base in cls.__mro__ for each in vars(base).get("_offered", ()) if each.name not in without]
        theirs = [] if method is None else settings_of_class(method)
        both = {each.name: each for each in own} | {each.name: each for each in theirs if each.words}
        first = [each.name for each in theirs if each.name not in {one.name for one in own}]
        known = {each.name: each for each in theirs} | both
        rank = ["n_components"] if "n_components" in known else []
        names = list(dict.fromkeys([*rank, *first, *(each.name for each in own)]))
        settings = tuple(_in_context(known[name], cls, method, n_components) for name in names)
        if method is not None:
            cls._method = method
        cls._declared = settings
        cls._own = tuple(each for each in settings if each.name not in {one.name for one in theirs})
        cls.__init__ = explicit_init(cls, settings)
        cls.__doc__ = _documented(cls, method, settings)
        offer_former_names(cls, list(settings))
        return cls

    return make


def _in_context(each: Setting, cls: type, method: type[Algorithm] | None, rank: int) -> Setting:
    """Say of a setting what depends on the algorithm."""
    words, default = each.words, each.default
    if default is MISSING:
        default = rank
        if rank == 2:
            words += " No rule can choose it without a look at the data: 2 is the smallest that tells rows apart."
    if each.name == "missing_values" and method is not None and not method.handles_missing:
        words = "For the sake of one signature: this method refuses rows with missing cells."
    if each.name in ("device", "storage") and method is not None and not method.handles_tensors:
        if each.name not in {one.name for one in settings_of_class(method)}:
            words = "For the sake of one signature: this method works on the processor."
    if method is not None:
        most = method.default_rounds
        ratings = not hasattr(cls, "transform")
        fixed = isinstance(most, int) and most < 10_000  # more is said by methods that end by themselves
        words = words.replace("{rounds}", str(most) if fixed else "as many as the method needs")
        words = words.replace("{rows}", "users" if ratings else "rows").replace(
            "{data}", "the data" if ratings else "X"
        )
    return replace(each, default=default, declared=replace(each.declared, words=words))


def _is_ours(base: type) -> bool:
    return base.__module__.startswith("fedfactor.")


def _documented(cls: type, method: type[Algorithm] | None, settings: tuple[Setting, ...]) -> str:
    head, sections = split_sections(cls.__doc__ or "")
    if method is not None:
        summary, _, rest = head.partition("\n\n")
        problem = re.search(r"\.\. math::.*?(?=\n\n|\Z)", split_sections(method.__doc__ or "")[0], re.DOTALL)
        parts = [summary, *([problem[0]] if problem and ".. math::" not in head else []), *([rest] if rest else [])]
        needs = "" if method.handles_missing else " Needs complete rows."
        where = (
            f"The face of :class:`fedfactor.algorithms.{method.__name__}`, which says how it works and what travels."
        )
        head = "\n\n".join([*parts, where + needs])
    found: dict[str, str] = {}
    for base in reversed([base for base in cls.__mro__ if _is_ours(base)]):
        found |= split_entries(split_sections(vars(base).get("__doc__") or "")[1].get("Attributes", ""))
    sections.pop("Attributes", None)
    sections.setdefault("Examples", cleandoc(cls._example).replace("{name}", cls.__name__).replace("{how}", cls._how))
    return join_sections(
        head,
        {
            "Parameters": "\n".join(each.entry() for each in settings),
            "Attributes": "\n".join(found.values()),
            **sections,
        },
    )
