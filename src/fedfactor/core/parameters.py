"""A setting is declared once: name, type, default, bounds and words; checks, signatures and tables come from that.

An algorithm, and an estimator's group of settings, is a class whose fields are written ``name: type = setting(words,
default=...)``. Choices come from ``Literal`` types.
"""

from __future__ import annotations

import math
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

import numpy as np

from fedfactor.core.docstrings import indented, join_sections, split_sections
from fedfactor.core.errors import callers_level

T = TypeVar("T")

KEY = "setting"


@dataclass(frozen=True, slots=True)
class Declared:
    """What :func:`setting` was given, kept in the metadata of a dataclass field."""

    words: str = ""
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    because: str = ""
    formerly: str | None = None
    former_values: Mapping[Any, Any] = field(default_factory=dict[Any, Any])
    check: bool = True
    shown: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of an algorithm or an estimator, as declared, with its name, type and default."""

    name: str
    kind: Any
    default: Any
    declared: Declared
    set_by: str | None = None

    @property
    def words(self) -> str:
        """What it does, for readers."""
        return self.declared.words

    @property
    def choices(self) -> tuple[Any, ...]:
        """The words that it takes, if its type lists any."""
        return tuple(each for part in _parts(self.kind) if get_origin(part) is Literal for each in get_args(part))

    @property
    def bounds(self) -> str:
        """Where numbers must lie, in words; empty when anywhere.

        Examples
        --------
        >>> Setting("x", float, 1.0, Declared(at_least=0, below=2)).bounds
        'in [0, 2)'
        """
        d = self.declared
        low, high = d.at_least if d.above is None else d.above, d.at_most if d.below is None else d.below
        if low is None and high is None:
            return ""
        if high is None or high == math.inf:
            return f"above {low:g}" if d.above is not None else f"at least {low:g}"
        if low is None:
            return f"below {high:g}" if d.below is not None else f"at most {high:g}"
        return f"in {'[' if d.above is None else '('}{low:g}, {high:g}{']' if d.below is None else ')'}"

    @property
    def type_words(self) -> str:
        """The type as numpydoc writes it, without the default.

        Examples
        --------
        >>> Setting("alpha", float | Literal["same"] | None, None, Declared(at_least=0)).type_words
        'float, at least 0 or "same"'
        """
        if self.declared.shown:
            return self.declared.shown
        parts = _parts(self.kind)
        optional = type(None) in parts and self.default is None
        named = [_kind_words(part) for part in parts if not (optional and part is type(None))]
        if self.bounds:
            joint = " " if self.bounds.startswith("in") else ", "
            named = [f"{name}{joint}{self.bounds}" if name in ("int", "float") else name for name in named]
        if len(named) > 1:
            named = [*named[:-2], f"{named[-2]} or {named[-1]}"]
        return ", ".join(named)

    @property
    def heading(self) -> str:
        """The line of numpydoc that opens its entry."""
        if self.default is MISSING:
            return f"{self.name} : {self.type_words}"
        if self.default is None:
            return f"{self.name} : {self.type_words}, optional"
        return f"{self.name} : {self.type_words}, default={_shown(self.default)}"

    def entry(self) -> str:
        """Return the entry of numpydoc."""
        return f"{self.heading}\n{indented(self.words)}"

    def refusal(self, value: Any) -> str | None:
        """Say why a value cannot be taken, or nothing.

        Examples
        --------
        >>> gamma = Setting("gamma", float, 0.1, Declared(at_least=0))
        >>> gamma.refusal(-1), gamma.refusal(0.5)
        ('gamma=-1 must be at least 0.', None)
        >>> Setting("start", Literal["own", "common"], "own", Declared()).refusal("x")
        "start='x' is not known. Use one of own, common."
        """
        parts = _parts(self.kind)
        if not self.declared.check or any(self._fits(part, value) for part in parts):
            return None
        if _is_number(value) and _too_large(value):
            return f"{self.name} is larger than any number that processors compute with."
        reason = f": {self.declared.because}" if self.declared.because else ""
        if self.choices and isinstance(value, str) and str not in parts:
            others = [_wanted(part, self.bounds) for part in parts if get_origin(part) is not Literal]
            known = ", ".join(map(str, self.choices))
            known = f"one of {known}" if len(self.choices) > 1 else repr(known)
            known += "".join(f", or {other}" for other in others)
            return f"{self.name}={value!r} is not known. Use {known}{reason}."
        if parts == (float,) and _is_number(value) and math.isfinite(float(value)):
            return f"{self.name}={value} must {_lie(self.bounds)}{reason}."
        wanted = ", or ".join(_wanted(part, self.bounds) for part in parts)
        return f"{self.name}={value!r} must be {wanted}{reason}."

    def _fits(self, part: Any, value: Any) -> bool:
        if part is Any:
            return True
        if part is type(None):
            return value is None
        if get_origin(part) is Literal:
            return any(type(value) is type(each) and value == each for each in get_args(part))
        if part is bool:
            return isinstance(value, (bool, np.bool_, Real)) and value in (True, False)
        if part in (int, float):
            return _is_number(value) and (part is float or isinstance(value, Integral)) and self._within(value)
        if get_origin(part) is tuple:
            return _is_list(value) and self._each_fits(get_args(part), value)
        if part is str or get_origin(part) is not None:
            return isinstance(value, get_origin(part) or part)
        return True  # some class: what else can stand for it, only its owner knows

    def _each_fits(self, kinds: tuple[Any, ...], values: Sequence[Any]) -> bool:
        kinds = kinds[:1] * len(values) if kinds[-1] is Ellipsis else kinds
        return len(kinds) == len(values) and all(map(self._fits, kinds, values))

    def _within(self, value: Any) -> bool:
        d = self.declared
        if _too_large(value) or math.isnan(value) or (math.isinf(value) and d.at_most != math.inf):
            return False
        return (
            (d.at_least is None or value >= d.at_least)
            and (d.above is None or value > d.above)
            and (d.at_most is None or value <= d.at_most)
            and (d.below is None or value < d.below)
        )


def setting(
    words: str,
    *,
    default: Any = MISSING,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    because: str = "",
    formerly: str | None = None,
    former_values: Mapping[Any, Any] | None = None,
    check: bool = True,
    shown: str = "",
) -> Any:
    """Declare a setting: the value of a field of a class under :func:`declares_settings`.

    Parameters
    ----------
    words : str
        What it does, in words for users; numpydoc's marks may be used.
    default : object, optional
        Without one the setting must be given.
    at_least, above, at_most, below : float, optional
        Where numbers must lie. Infinity is refused unless ``at_most`` is infinite.
    because : str, optional
        Why the bounds are what they are; told when a value is refused.
    formerly : str, optional
        The name that it had before; still taken, with a warning.
    former_values : mapping, optional
        Choices that have a new name: old → new; still taken, with a warning.
    check : bool, default=True
        False: the owner of the setting looks at its values itself.
    shown : str, optional
        The type in docstrings, where that of the field says too little.

    Returns
    -------
    field
        For the body of a class.

    Examples
    --------
    >>> @declares_settings
    ... class Shrink:
    ...     '''Make numbers smaller.'''
    ...     amount: float = setting("By how much.", default=0.5, at_least=0, at_most=1)
    >>> check_settings(Shrink(amount=2.0))
    Traceback (most recent call last):
    ValueError: amount=2.0 must lie in [0, 1].
    >>> settings_of_class(Shrink)[0].heading
    'amount : float in [0, 1], default=0.5'
    """
    former: Mapping[Any, Any] = {} if former_values is None else former_values
    declared = Declared(words, at_least, above, at_most, below, because, formerly, former, check, shown)
    return field(default=default, metadata={KEY: declared})


def set_by_privacy(words: str = "", *, default: Any = None) -> Any:
    """Mark a setting that :func:`fedfactor.dp` makes, and that estimators therefore do not offer."""
    return field(default=default, metadata={KEY: Declared(words), "set_by": "privacy"})


def set_by_run(words: str = "", *, default: Any = None) -> Any:
    """Mark a setting that a run finds, and that estimators therefore do not offer."""
    return field(default=default, metadata={KEY: Declared(words), "set_by": "run"})


@dataclass_transform(frozen_default=True, field_specifiers=(setting, set_by_privacy, set_by_run, field))
def declares_settings(cls: type[T]) -> type[T]:
    """Make a class a frozen, slotted dataclass with the entries of its settings in its docstring.

    Names and values that a setting had before are taken with a :class:`DeprecationWarning` that names the new ones.
    """
    made = dataclass(frozen=True, slots=True)(cls)
    made.__doc__ = with_parameters(made.__doc__ or "", settings_of_class(made, offered=False))
    _take_former_names(made)
    return made


def offers_settings(cls: type[T]) -> type[T]:
    """Collect the settings that a class declares in its body, for the estimators that inherit from it."""
    kinds = get_type_hints(cls)
    own: dict[str, Any] = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
    found = {name: value for name, value in own.items() if KEY in value.metadata}
    made = tuple(Setting(name, kinds[name], each.default, each.metadata[KEY]) for name, each in found.items())
    cls._offered = made  # type: ignore[attr-defined]
    for name in found:
        delattr(cls, name)  # an estimator's attributes are set when it is made
    return cls


def settings_of_class(cls: type | Any, *, offered: bool = True) -> list[Setting]:
    """List the settings of a dataclass in the order of its signature; ``offered``: only those that users choose.

    Examples
    --------
    >>> from fedfactor.algorithms import FedAvgNMF
    >>> [each.name for each in settings_of_class(FedAvgNMF)][:2]
    ['n_components', 'local_steps']
    """
    try:
        kinds = get_type_hints(cls if isinstance(cls, type) else type(cls))
    except NameError:  # an annotation that only type checkers can read; its values are not looked at
        kinds = {}
    found: list[Setting] = []
    # In the order of the signature: a base's keyword-only settings come after those of the class itself.
    for each in sorted(fields(cls), key=lambda each: each.kw_only is True) if is_dataclass(cls) else ():
        set_by = each.metadata.get("set_by")
        if not (offered and set_by):
            declared = each.metadata.get(KEY, Declared())
            found.append(Setting(each.name, kinds.get(each.name, Any), each.default, declared, set_by))
    return found


def check_settings(holder: Any, settings: list[Setting] | None = None) -> None:
    """Refuse the first setting whose value its declaration does not allow."""
    for each in settings_of_class(holder, offered=False) if settings is None else settings:
        said = each.refusal(getattr(holder, each.name))
        if said:
            raise ValueError(said)


def former_names(settings: list[Setting]) -> dict[str, str]:
    """Return old name → new name of settings that were renamed."""
    return {each.declared.formerly: each.name for each in settings if each.declared.formerly}


def renamed(owner: str, given: Mapping[str, Any], settings: list[Setting], *, values: bool = True) -> dict[str, Any]:
    """Replace names (and choices) that settings had before by those of now, with a warning for each."""
    old, known = former_names(settings), {each.name: each for each in settings}
    found: dict[str, Any] = {}
    for name, value in given.items():
        now = old.get(name, name)
        if now in found or (now != name and now in given):
            raise TypeError(f"{owner} got both {name!r} and {now!r}, the old and the new name of one setting.")
        if now != name:
            _warn(f"The setting {name!r} of {owner} is now called {now!r}.")
        found[now] = renamed_value(owner, known[now], value) if values and now in known else value
    return found


def renamed_value(owner: str, declared: Setting, value: Any) -> Any:
    """Replace a choice by its new name, with a warning."""
    former = declared.declared.former_values
    if not isinstance(value, str) or value not in former:
        return value
    _warn(f"{declared.name}={value!r} of {owner} is now called {former[value]!r}.")
    return former[value]


def _warn(what: str) -> None:
    warnings.warn(f"{what} The old name will be refused in a later version.", DeprecationWarning, callers_level())


def _take_former_names(cls: type) -> None:
    settings = settings_of_class(cls)
    if not any(each.declared.formerly or each.declared.former_values for each in settings):
        return
    made: Callable[..., None] = cls.__init__
    places = list(signature(made).parameters)[1:]

    @wraps(made)
    def __init__(self: Any, *args: Any, **named: Any) -> None:
        given = dict(zip(places, args, strict=False)) if len(args) <= len(places) else None
        if given is None or set(given) & set(named):
            made(self, *args, **named)  # which says what is wrong
        else:
            made(self, **renamed(cls.__name__, {**given, **named}, settings))

    cls.__init__ = __init__
    offer_former_names(cls, settings)


def offer_former_names(cls: type, settings: list[Setting]) -> None:
    """Let a renamed setting be read, and written where others can be, under its old name."""
    for old, new in former_names(settings).items():
        setattr(cls, old, _former(cls.__name__, old, new))


def _former(owner: str, old: str, new: str) -> property:
    def read(self: Any) -> Any:
        _warn(f"The setting {old!r} of {owner} is now called {new!r}.")
        return getattr(self, new)

    def write(self: Any, value: Any) -> None:
        _warn(f"The setting {old!r} of {owner} is now called {new!r}.")
        setattr(self, new, value)

    return property(read, write, doc=f"The old name of ``{new}``.")


def explicit_init(cls: type, settings: tuple[Setting, ...]) -> Callable[..., None]:
    """Make an ``__init__`` that has the settings as parameters, all but the first by keyword only, and keeps them."""
    kinds = [Parameter.POSITIONAL_OR_KEYWORD, *[Parameter.KEYWORD_ONLY] * (len(settings) - 1)]
    explicit = [
        Parameter(each.name, kind, default=each.default, annotation=each.kind)
        for each, kind in zip(settings, kinds, strict=True)
    ]
    made = Signature([Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *explicit], return_annotation=None)

    def __init__(self: Any, *given: Any, **named: Any) -> None:
        try:
            bound = made.bind(self, *given, **renamed(cls.__name__, named, list(settings), values=False))
        except TypeError as error:
            raise TypeError(f"{cls.__name__}: {error}") from None
        bound.apply_defaults()
        for each in settings:
            setattr(self, each.name, bound.arguments[each.name])

    __init__.__signature__ = made  # type: ignore[attr-defined]
    __init__.__annotations__ = {each.name: each.kind for each in settings} | {"return": None}
    __init__.__qualname__, __init__.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return __init__


def with_parameters(doc: str, settings: list[Setting]) -> str:
    """Put the entries of settings into a docstring, before its other sections.

    Examples
    --------
    >>> with_parameters("Say it.", [Setting("often", int, 1, Declared("How often.", at_least=1))]).split()[:4]
    ['Say', 'it.', 'Parameters', '----------']
    """
    head, sections = split_sections(doc)
    if "Parameters" in sections or not any(each.words for each in settings):
        return cleandoc(doc)
    entries = "\n".join(each.entry() for each in settings)
    return join_sections(head, {"Parameters": entries, **sections})


def _parts(kind: Any) -> tuple[Any, ...]:
    """List the alternatives of a type, those of all literals as one."""
    parts = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    words = tuple(each for part in parts if get_origin(part) is Literal for each in get_args(part))
    others = tuple(part for part in parts if get_origin(part) is not Literal)
    if not words:
        return others
    return (Literal[words], *others) if get_origin(parts[0]) is Literal else (*others, Literal[words])


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real)


def _too_large(value: Any) -> bool:
    """Tell whether a number is finite, and yet beyond what processors hold."""
    if isinstance(value, Integral):
        return abs(int(value)) > sys.maxsize
    try:
        float(value)
    except OverflowError:  # a fraction
        return True
    return False


def _is_list(value: Any) -> bool:
    return isinstance(value, (tuple, list)) or getattr(value, "ndim", 0) == 1


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _kind_words(part: Any) -> str:
    if get_origin(part) is Literal:
        choices = ", ".join(map(_shown, get_args(part)))
        return choices if len(get_args(part)) == 1 else f"{{{choices}}}"
    if part is Any:
        return "object"
    if part is type(None):
        return "None"
    origin, inside = get_origin(part), [_kind_words(each) for each in get_args(part) if each is not Ellipsis]
    if origin is None:
        return str(getattr(part, "__name__", part))
    if issubclass(origin, Mapping):
        return f"mapping of {inside[0]} to {inside[1]}"
    return f"{origin.__name__.lower()} of {inside[0]}" if len(set(inside)) == 1 else f"{origin.__name__.lower()}"


def _lie(bounds: str) -> str:
    """Say in a sentence where a number must lie."""
    if bounds == "above 0":
        return "be positive"
    return f"lie {bounds}" if bounds.startswith("in") else f"be {bounds}" if bounds else "be a finite number"


def _wanted(part: Any, bounds: str) -> str:
    if part is bool:
        return "True or False"
    if part is str:
        return "a text"
    if get_origin(part) is Literal:
        return " or ".join(map(repr, get_args(part)))
    if get_origin(part) is tuple:
        inside = get_args(part)
        noun = {int: "whole numbers", float: "numbers"}.get(inside[0], "parts")
        count = "" if inside[-1] is Ellipsis else f"{len(inside)} "
        return f"a tuple of {count}{noun} {bounds}".strip()
    if part not in (int, float):
        return _kind_words(part) if part is type(None) else f"a {_kind_words(part)}"
    noun = "whole number" if part is int else "number"
    if bounds == "above 0":
        return f"a positive {noun}"
    return f"a {noun} of {bounds}" if bounds.startswith("at ") else f"a {noun} {bounds}".strip()
