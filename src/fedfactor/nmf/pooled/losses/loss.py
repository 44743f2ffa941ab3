"""What a loss of PooledNMF is: rows of U for a given V, their sums, the step on V that these sums allow, its scale."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace, is_torch_array

from fedfactor.core.algorithm import Meta
from fedfactor.core.errors import DataError
from fedfactor.core.pytree import Array
from fedfactor.core.wire import Spec
from fedfactor.linalg.factors import extrapolate, row_sums
from fedfactor.linalg.missing_values import Penalty
from fedfactor.linalg.products import is_sparse
from fedfactor.nmf.pooled.extrapolation import is_zero
from fedfactor.nmf.pooled.regularization import price

FLOOR = 0.1
"""Share of an entry that an extrapolated multiplicative step leaves: such a step never leaves zero again."""

LAST_STEPS = 100
"""Multiplicative steps on U for a final V."""

HIDDEN_BACKGROUND = 0.01
"""Share of a flat row in what a divergence predicts of hidden cells: held to be impossible, a cell that is there would
cost infinitely much, and all ranks would look alike."""


MEAN_SHARE = 0.3
"""Share of the mean component in those that a run begins with after wide rounds."""

FLAT_SHARE = 0.01
"""Share of a flat component in that mean component."""


class Step(NamedTuple):
    """A new V, the loss there (a bound of it where sums do not reveal more), and its part that is error; None: unknown.

    Both are numbers, or tensors without dimensions on a GPU that need not be there yet.
    """

    V: Array
    loss: Any
    sse: Any


@dataclass(frozen=True, slots=True)
class Loss(ABC):
    """One loss: everything that PooledNMF does differently for it.

    A loss of its own is one file beside this one, and one line in the list of :mod:`.losses`. Clients call
    :meth:`check`, :meth:`total`, :meth:`rows_and_sums`, :meth:`solve` and :meth:`error` on their rows, the server
    :meth:`first_V`, :meth:`step`, :meth:`ahead` and :meth:`lengths` on sums alone.

    What :meth:`sums` returns is a sum over rows in every leaf. So the sums of a client are those of its blocks of rows
    added up, as the sums of a federation are those of its clients.
    """

    name: ClassVar[str]
    """What users call it."""
    order: ClassVar[float | None] = None
    """The β of which it is the β-divergence: a number that users may give in place of the name."""
    words: ClassVar[str]
    """One line for users."""
    squared: ClassVar[bool] = False
    """Whether it is the squared error, which stacked starts and clipped rows need."""
    private: ClassVar[bool] = False
    """Whether clients may have components of their own: it has a :meth:`private_step`."""
    starts_wide: ClassVar[bool] = False
    """Whether a run over complete rows may begin with wide rounds, which minimise squares."""
    quiet_rounds: ClassVar[int] = 0
    """Rounds at the beginning without extrapolation."""

    least_rounds: ClassVar[int] = 0
    """Rounds before which no run counts as converged."""
    wide_rounds: ClassVar[int] = 2
    """Wide rounds at the beginning, where it has such."""

    @property
    def start_power(self) -> float:
        """The power of each cell of which wide rounds take the squared error."""
        return 1.0

    @property
    def start_scaling(self) -> float:
        """The power of a row's and of a column's level by which wide rounds divide their cells."""
        return 0.0

    @classmethod
    def of(cls, setting: object) -> Loss | None:
        """Return the loss that a user named, if it is this one."""
        number = cls.order is not None and isinstance(setting, Real) and setting is not True and setting is not False
        return cls() if setting == cls.name or (number and setting == cls.order) else None

    def over(self, masked: bool) -> Loss:
        """Return the loss for a federation in which cells are missing, or none."""
        return self

    @abstractmethod
    def messages(self, k: int, meta: Meta) -> tuple[type, Spec]:
        """Name the upload and the leaves that :meth:`sums` fills."""

    def first_V(self, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        """Draw the V that a run begins with: nearly flat, so that no component is lost before it has seen the data."""
        return rng.uniform(0.99, 1.01, shape)

    def rows_for_start(self, X: Array) -> Array:
        """Return the power of the cells of which wide rounds take the squared error."""
        return X if self.start_power == 1 else powers(X, self.start_power)

    def first_private(self, Q: Array) -> Array:
        """Return the components of one client to begin with, of the length that the loss gives them."""
        return Q / self.lengths(Q)

    def private_step(self, U: Array, X: Array, V: Array, Q: Array, mask: Any, *, sweeps: int) -> Array:
        """Improve the components of one client, its U for shared and private ones held."""
        raise NotImplementedError

    def first_from(self, V: Array, columns: Array | None = None) -> Array:
        """Return the V to begin with, from the one that the wide rounds lead to in units of these levels of columns."""
        return V

    def check(self, X: Array, mask: Any, owner: str | None) -> None:
        """Refuse values for which the loss has no meaning, and rows that it cannot read."""
        if is_torch_array(X) and is_sparse(X) and not self.reads_sparse_tensors(X):
            raise DataError(
                f"Owner {owner!r} brings a sparse tensor of torch, which loss={self.name!r} cannot read; the squared "
                "error can. Pass a SciPy CSR matrix, or a dense tensor."
            )

    def reads_sparse_tensors(self, X: Array) -> bool:
        """Return whether such a sparse tensor of torch can be read."""
        return False

    def pays(self, alpha_U: float, n_private: int, ridge: float | str) -> bool:
        """Return whether U is regularized, so that clients must send the penalty."""
        return alpha_U > 0 or n_private > 0

    def penalty(self, pay: Penalty, V: Array, mask: Any, *, own: bool = False) -> Penalty:
        """Return what U pays under this loss; the ridge is for squared errors over missing cells."""
        return pay._replace(ridge=0.0, scarce=0.0, few=0.0)

    @abstractmethod
    def total(self, X: Array, mask: Any) -> float:
        """Return what a relative error divides by."""

    @abstractmethod
    def rows(self, U: Array, X: Array, V: Array, mask: Any, *, sweeps: int, pay: Penalty) -> Array:
        """Improve U, every row for itself; rows of zeros begin again."""

    @abstractmethod
    def sums(self, U: Array, X: Array, V: Array, mask: Any, *, total: float, own: Array | None = None) -> Any:
        """Sum over rows what the step on V depends on, and their error; `total` is what :meth:`total` returns for
        them.
        """

    def rows_and_sums(
        self, U: Array, X: Array, V: Array, mask: Any, *, sweeps: int, pay: Penalty, total: float
    ) -> tuple[Array, Any]:
        """Improve U, then sum: for all rows of a client or for a block of them, whose sums add up."""
        U = self.rows(U, X, V, mask, sweeps=sweeps, pay=pay)
        return U, self.sums(U, X, V, mask, total=total)

    @abstractmethod
    def solve(self, U: Array | None, X: Array, V: Array, mask: Any, pay: Penalty) -> Array:
        """Solve U for a final V, from where it stands or (None) from nothing."""

    @abstractmethod
    def error(self, X: Array, U: Array, V: Array, mask: Any, *, hidden: bool = False) -> tuple[float, int, float]:
        """Return the error, the number of cells, and what a relative error divides by.

        `hidden`: the cells of the mask were held out of the fit.
        """

    @abstractmethod
    def step(self, V: Array, up: Any, pooled: Any, share: float, sweeps: int, pay: tuple[float, float]) -> Step:
        """Improve V on the pooled sums; report the loss of those who took part, a `share` of all."""

    def ahead(self, V: Array, V_last: Array, beta: float) -> Array:
        """Extrapolate, leaving a share of every entry."""
        return array_namespace(V).maximum(extrapolate(V, V_last, beta), FLOOR * V)

    @abstractmethod
    def lengths(self, V: Array) -> Array:
        """Return what to divide the rows of V by, where penalties do not decide it."""

    def ahead_in_units(self, V: Array, V_last: Array, beta: Any) -> tuple[Array, Array, Array]:
        """Extrapolate; return V and what was reached, both divided by the lengths of the latter, and these."""
        sent = V if is_zero(beta) else self.ahead(V, V_last, beta)
        lengths = self.lengths(sent)
        return V / lengths, sent / lengths, lengths


def powers(X: Array, power: float) -> Array:
    """Return a power of every cell; of a sparse matrix, of every stored cell.

    Examples
    --------
    >>> powers(np.array([4.0, 9.0]), 0.5).tolist()
    [2.0, 3.0]
    """
    if scipy.sparse.issparse(X):
        return X.__class__((powers(X.data, power), X.indices, X.indptr), shape=X.shape)
    return array_namespace(X).sqrt(X) if power == 0.5 else X**power


def mixed_with_mean(V: Array) -> Array:
    """Return components of sum 1 with a share of their mean and of a flat one: a zero would stay zero for ever.

    Examples
    --------
    >>> V = mixed_with_mean(np.array([[2.0, 0.0], [0.0, 5.0]]))
    >>> bool((V > 0).all()), V.sum(axis=1).round(6).tolist()
    (True, [1.0, 1.0])
    """
    V = V / row_sums(V)
    mean = array_namespace(V).mean(V, axis=0, keepdims=True)
    return (1 - MEAN_SHARE) * V + MEAN_SHARE * ((1 - FLAT_SHARE) * mean + FLAT_SHARE / V.shape[1])


def told_by_gain(up: Any, V: Array, new: Array, gain: float, share: float, pay: tuple[float, float]) -> Step:
    """Return the loss after a step that lowered half of it, what V pays included, by `gain` at least."""
    if up.sse is None:
        return Step(new, None, None)
    extra = 0.0 if up.extra is None else float(up.extra)
    sse = float(up.sse) - 2 * share * (gain - price(V, pay) + price(new, pay))
    return Step(new, max(float(up.sse) + extra + share * 2 * (price(V, pay) - gain), 0.0), max(sse, 0.0))
