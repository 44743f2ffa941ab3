"""The local Boolean solvers by name."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fedfactor.boolean.solvers.asso import asso
from fedfactor.boolean.solvers.elbmf import elbmf
from fedfactor.boolean.solvers.grecond import grecond
from fedfactor.boolean.solvers.mebf import mebf
from fedfactor.boolean.solvers.primp import primp
from fedfactor.boolean.solvers.result import Factored
from fedfactor.boolean.solvers.zhang import zhang
from fedfactor.core.pytree import Array

__all__ = ["SOLVERS", "Solver", "factor"]
Solver = Literal["asso", "elbmf", "grecond", "mebf", "primp", "zhang"]
SOLVERS: dict[str, Any] = {
    "asso": asso,
    "elbmf": elbmf,
    "grecond": grecond,
    "mebf": mebf,
    "primp": primp,
    "zhang": zhang,
}
RANDOM = ("elbmf", "primp", "zhang")
"""Those that start from random factors."""


def factor(X: Array, k: int, solver: str, *, rng: np.random.Generator, **options: Any) -> Factored:
    """Factor a Boolean matrix with a solver by name.

    Parameters
    ----------
    X : array or sparse matrix of 0 and 1, shape (n, m)
    k : int
        Components.
    solver : {"asso", "elbmf", "grecond", "mebf", "primp", "zhang"}
    rng : Generator
        For those that start from random factors.
    **options
        Further arguments of the solver.

    Examples
    --------
    >>> import numpy as np
    >>> factor(np.eye(2), 2, "grecond", rng=np.random.default_rng(0)).finished
    True
    """
    if solver not in SOLVERS:
        raise ValueError(f"solver={solver!r} is not known. Use one of {', '.join(SOLVERS)}.")
    start = {"rng": rng} if solver in RANDOM else {}
    try:
        return SOLVERS[solver](X, k, **start, **options)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        raise ValueError(f"The solver {solver!r} does not take such an option: {error}.") from None
