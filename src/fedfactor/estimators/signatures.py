"""How an estimator gets its signature and its docstring: from its algorithm's settings, and from those of every run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, replace
from inspect import cleandoc
from typing import Any, ClassVar, Self, TypeVar

from sklearn.base import BaseEstimator

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.client_data import Federation
from fedfactor.core.docstrings import complete_methods, entries_of_bases, join_sections, split_sections, with_formula
from fedfactor.core.parameters import (
    Setting,
    check_settings,
    explicit_init,
    offer_former_names,
    offers_settings,
    renamed,
    setting,
    settings_of_class,
)
from fedfactor.core.run import Run
from fedfactor.core.versioned_pickle import VersionedPickle
from fedfactor.engines.restarts import best_of, starts_of
from fedfactor.network.message_format import WIRE
from fedfactor.privacy.dp import refuse_repeats

T = TypeVar("T", bound=type)


class Face(VersionedPickle, BaseEstimator):
    """An estimator whose ``__init__`` was made from declared settings."""

    _pickled_by = WIRE
    _method: ClassVar[type[Algorithm]]
    _declared: ClassVar[tuple[Setting, ...]] = ()
    _own: ClassVar[tuple[Setting, ...]] = ()
    _example: ClassVar[str]
    _how: ClassVar[str]
    """Settings of the example."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        complete_methods(cls)

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

    def _algorithm(self) -> Algorithm:
        """Make the algorithm; refuse settings, of it and of this estimator, that their declarations do not allow."""
        algorithm = self._method(**{each.name: getattr(self, each.name) for each in settings_of_class(self._method)})
        check_settings(algorithm)
        check_settings(self, list(self._own))
        return algorithm


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
        if self.n_init is not None:
            refuse_repeats(self.privacy, self.n_init, f"n_init={self.n_init}")
        one = super()._run  # pyright: ignore[reportAttributeAccessIssue]
        starts = starts_of(algorithm, self.n_init, private=self.privacy is not None)
        return best_of(starts, seed, lambda _, each, seed: one(each, federation, engine, seed))


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


def _documented(cls: type[Face], method: type[Algorithm] | None, settings: tuple[Setting, ...]) -> str:
    head, sections = split_sections(cls.__doc__ or "")
    if method is not None:
        where = f":class:`fedfactor.algorithms.{method.__name__}`, which says how it works and what travels."
        needs = "" if method.handles_missing else " Needs complete rows."
        head = f"{with_formula(head, method.__doc__ or '')}\n\nThe face of {where}{needs}"
    sections.setdefault("Examples", cleandoc(cls._example).replace("{name}", cls.__name__).replace("{how}", cls._how))
    made = {
        "Parameters": "\n".join(each.entry() for each in settings),
        "Attributes": entries_of_bases(cls, "Attributes"),
    }
    return join_sections(head, {**made, **{title: text for title, text in sections.items() if title not in made}})
