"""Parameters of algorithms are declared once: name, type, default, bounds and description.

An algorithm is a class whose fields are written ``name: type = setting(words, default=...)``; choices are ``Literal``
types. Values are validated by msgspec, with messages of our own.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from numbers import Integral, Real
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from fedfactor.core.parameter_messages import bounds_words, must_be, type_words, types_of, wanted

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
    check: bool = True
    shown: str = ""

    def meta(self) -> msgspec.Meta:
        """Return the bounds as msgspec takes them."""
        given: dict[str, Any] = {"ge": self.at_least, "gt": self.above, "lt": self.below}
        if self.at_most != math.inf:
            given["le"] = self.at_most
        return msgspec.Meta(**given)


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
        return tuple(each for part in types_of(self.kind) if get_origin(part) is Literal for each in get_args(part))

    @property
    def bounds(self) -> str:
        """The range of numbers in words; empty if they are unbounded."""
        return bounds_words(self.declared)

    @property
    def type_words(self) -> str:
        """The type as numpydoc writes it, without the default."""
        return self.declared.shown or type_words(self.kind, self.bounds, optional=self.default is None)

    def refusal(self, value: Any) -> str | None:
        """Return the error message for a value that is not allowed, else None.

        Examples
        --------
        >>> gamma = Setting("gamma", float, 0.1, Declared(at_least=0))
        >>> gamma.refusal(-1), gamma.refusal(0.5)
        ('gamma=-1 must be at least 0.', None)
        >>> Setting("start", Literal["own", "common"], "own", Declared()).refusal("x")
        "start='x' is not known. Use one of own, common."
        """
        parts = types_of(self.kind)
        if not self.declared.check or any(self._fits(part, value) for part in parts):
            return None
        if _is_number(value) and _too_large(value):
            return f"{self.name} is larger than any number that processors compute with."
        reason = f": {self.declared.because}" if self.declared.because else ""
        if self.choices and isinstance(value, str) and str not in parts:
            return f"{self.name}={value!r} is not known. Use {self._known(parts)}{reason}."
        if parts == (float,) and _is_number(value) and math.isfinite(float(value)):
            return f"{self.name}={value} must {must_be(self.bounds)}{reason}."
        return f"{self.name}={value!r} must be {', or '.join(wanted(part, self.bounds) for part in parts)}{reason}."

    def _known(self, parts: tuple[Any, ...]) -> str:
        known = ", ".join(map(str, self.choices))
        known = f"one of {known}" if len(self.choices) > 1 else repr(known)
        others = [wanted(part, self.bounds) for part in parts if get_origin(part) is not Literal]
        return known + "".join(f", or {other}" for other in others)

    def _fits(self, part: Any, value: Any) -> bool:
        if part is bool:  # 0 and 1 as well, as scikit-learn does
            return isinstance(value, (bool, np.bool_, Real)) and value in (True, False)
        kind = self._constrained(part)
        if kind is None:
            return isinstance(value, get_origin(part)) if get_origin(part) else True  # of a class only its user knows
        if (part in (int, float) or get_origin(part) is tuple) and not self._numbers_fit(value):
            return False
        try:
            msgspec.convert(_plain(value), kind)
        except msgspec.ValidationError:
            return False
        return True

    def _constrained(self, part: Any) -> Any:
        """Return a type with the bounds as msgspec takes them, None for one that it does not validate here."""
        if part in (int, float):
            return Annotated[part, self.declared.meta()]
        if get_origin(part) is tuple:
            inside = [each if each is Ellipsis else self._constrained(each) or Any for each in get_args(part)]
            return tuple[*inside]
        if part in (Any, str, type(None)) or get_origin(part) is Literal:
            return part
        return None

    def _numbers_fit(self, value: Any) -> bool:
        """Return False for numbers that no processor holds, and for NaN and infinity unless allowed."""
        if _is_list(value):
            return all(map(self._numbers_fit, value))
        if not _is_number(value):
            return True
        infinite = self.declared.at_most == math.inf
        return not _too_large(value) and (math.isfinite(value) or (infinite and value == math.inf))


def setting(
    words: str,
    *,
    default: Any = MISSING,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    because: str = "",
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
        Why the bounds are what they are; reported when a value is refused.
    check : bool, default=True
        False: the client of the setting looks at its values itself.
    shown : str, optional
        The type in docstrings, where that of the field is too general.

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
    >>> settings_of_class(Shrink)[0].type_words
    'float in [0, 1]'
    """
    declared = Declared(words, at_least, above, at_most, below, because, check, shown)
    return field(default=default, metadata={KEY: declared})


def set_by_privacy(words: str = "", *, default: Any = None) -> Any:
    """Mark a setting that :func:`fedfactor.dp` makes, and that estimators therefore do not offer."""
    return field(default=default, metadata={KEY: Declared(words), "set_by": "privacy"})


def set_by_run(words: str = "", *, default: Any = None) -> Any:
    """Mark a setting that a run finds, and that estimators therefore do not offer."""
    return field(default=default, metadata={KEY: Declared(words), "set_by": "run"})


@dataclass_transform(frozen_default=True, field_specifiers=(setting, set_by_privacy, set_by_run, field))
def declares_settings(cls: type[T]) -> type[T]:
    """Make a class a frozen, slotted dataclass."""
    return dataclass(frozen=True, slots=True)(cls)


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


def with_tuples(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with tuples in place of lists, which is what a file makes of them.

    Examples
    --------
    >>> with_tuples({"ranks": [2, 3], "tol": 0.1})
    {'ranks': (2, 3), 'tol': 0.1}
    """
    lists: dict[str, list[Any]] = {name: value for name, value in settings.items() if isinstance(value, list)}
    return {**settings, **{name: tuple(value) for name, value in lists.items()}}


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real)


def _too_large(value: Any) -> bool:
    """Return whether a number is finite, and yet beyond what processors hold."""
    if isinstance(value, Integral):
        return abs(int(value)) > sys.maxsize
    try:
        float(value)
    except OverflowError:  # a fraction
        return True
    return False


def _is_list(value: Any) -> bool:
    return isinstance(value, (tuple, list)) or getattr(value, "ndim", 0) == 1


def _plain(value: Any) -> Any:
    """Return a number or a sequence of numbers as Python's own, which is what msgspec validates."""
    if _is_list(value):
        return [_plain(each) for each in value]
    if hasattr(value, "dtype") and hasattr(value, "item"):
        return value.item()
    if not _is_number(value):
        return value
    return int(value) if isinstance(value, Integral) else float(value)
