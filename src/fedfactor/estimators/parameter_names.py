"""Other names of parameters: aliases, and those that scikit-learn uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

__all__ = ["accept_other_names", "current_names"]

T = TypeVar("T", bound=type)

SCIKIT_LEARN: Mapping[str, tuple[str, ...]] = {
    "alpha_H": ("alpha_V",),
    "alpha_W": ("alpha_U",),
    "beta_loss": ("loss",),
    "init": ("start",),
    "max_iter": ("iterations", "epochs", "local_steps", "rounds"),
    "n_factors": ("n_components",),
    "solver": ("local_solver",),
}
"""Name in scikit-learn → names of the same parameter here, of which the first that an estimator has is suggested."""


def accept_other_names(**aliases: str) -> Callable[[T], T]:
    """Let an estimator take further names of its parameters in ``__init__``, ``set_params`` and as attributes.

    Parameters
    ----------
    **aliases : str
        Alias → parameter, such as ``max_iter="rounds"``; taken without a warning.

    Returns
    -------
    decorator
        For a class with ``_method``.
    """

    def decorate(cls: T) -> T:
        cls._aliases = aliases
        init: Callable[..., None] = cls.__init__

        @wraps(init)
        def __init__(self: Any, *args: Any, **given: Any) -> None:
            init(self, *args, **current_names(cls, given))

        cls.__init__ = __init__
        for alias, name in aliases.items():
            setattr(cls, alias, _alias(name))
        return cls

    return decorate


def current_names(cls: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Replace other names of parameters by those of the signature.

    Raises
    ------
    TypeError
        If two names of one parameter are given, or a name of scikit-learn that has another one here.
    """
    known = cls._get_param_names()
    found = dict(given)
    for alias, name in cls._aliases.items():
        if alias in found and name in found:
            raise TypeError(f"{cls.__name__} got both {alias!r} and {name!r}, two names of one parameter.")
        if alias in found:
            found[name] = found.pop(alias)
    for name in found:
        ours = [each for each in SCIKIT_LEARN.get(name, ()) if each in known]
        if ours and name not in known:
            raise TypeError(f"{cls.__name__} has no parameter {name!r}. The parameter is called {ours[0]!r} here.")
    return found


def _alias(name: str) -> property:
    def read(self: Any) -> Any:
        return getattr(self, name)

    def write(self: Any, value: Any) -> None:
        setattr(self, name, value)

    return property(read, write, doc=f"Alias of ``{name}``.")
