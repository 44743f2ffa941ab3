"""Boolean factors: U (n × k) and V (k × m) of zeros and ones, with ``(U ∘ V)_ij = OR_l (U_il AND V_lj)``.

Data and factors are NumPy, torch or SciPy sparse with entries 0 and 1; inside, they are packed 64 cells to a word, a
block of rows at a time, so that sparse data are never made dense.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace

from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean.counting import observed
from fedfactor.core.pytree import Array
from fedfactor.linalg.alignment.assignment import align_rows
from fedfactor.linalg.products import as_like, cross

__all__ = ["Cells", "boolean_product", "boolean_refit", "count", "hashed_rows", "match_rows", "round_half", "vote"]
_WORDS = 1 << 20  # words of packed rows that may exist at one time


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells counted: in all, ones of the data, ones of the reconstruction, ones of both.

    Examples
    --------
    >>> cells = Cells(n=10, ones=4, made=3, both=2)
    >>> cells.wrong, cells.loss, cells.recall, round(cells.precision, 3), cells.similarity
    (3, 0.75, 0.5, 0.667, 0.7)
    """

    n: int
    ones: int
    made: int
    both: int

    @property
    def wrong(self) -> int:
        """Cells in which data and reconstruction differ."""
        return self.ones + self.made - 2 * self.both

    @property
    def loss(self) -> float:
        """Wrong cells over the ones of the data: 1 for an empty reconstruction; may exceed 1."""
        return self.wrong / max(1, self.ones)

    @property
    def recall(self) -> float:
        """Share of the ones that are reconstructed; 1 when there are none."""
        return self.both / self.ones if self.ones else 1.0

    @property
    def precision(self) -> float:
        """Share of the reconstructed ones that are right; of an empty one 1 if the data are empty too, else 0."""
        return self.both / self.made if self.made else float(self.ones == 0)

    @property
    def similarity(self) -> float:
        """Share of equal cells."""
        return 1 - self.wrong / self.n if self.n else 1.0

    def __add__(self, other: Cells) -> Cells:
        """Pool two counts."""
        return Cells(self.n + other.n, self.ones + other.ones, self.made + other.made, self.both + other.both)


def round_half(V: Array) -> Array:
    """Round numbers in [0, 1] to 0 or 1; ½ goes to 0, as the proximal map sends it.

    Examples
    --------
    >>> import numpy as np
    >>> round_half(np.array([0.2, 0.5, 0.6]))
    array([0., 0., 1.])
    """
    xp = array_namespace(V)
    return xp.astype(V > 0.5, V.dtype)


def boolean_product(U: Array, V: Array) -> Array:
    """Return ``U ∘ V`` as a matrix of zeros and ones, of the type of `U`.

    Examples
    --------
    >>> import numpy as np
    >>> boolean_product(np.array([[1.0, 1.0]]), np.array([[1.0, 0.0], [1.0, 0.0]]))
    array([[1., 0.]])
    """
    return round_half(U @ as_like(V, U))


def count(X: Array, U: Array, V: Array, mask: Array | str | None = None) -> Cells:
    """Count the cells of X and of ``U ∘ V``; neither is made dense, and of complete rows the product is never stored.

    Parameters
    ----------
    X : array or sparse matrix of 0 and 1, shape (n, m)
    U : array of 0 and 1, shape (n, k)
    V : array of 0 and 1, shape (k, m)
    mask : bool array like X, "stored", or None
        Which cells count: all of them (None), those marked True, or the stored cells of a sparse matrix.

    Examples
    --------
    >>> import numpy as np
    >>> count(np.eye(2), np.ones((2, 1)), np.array([[1.0, 0.0]]))
    Cells(n=4, ones=2, made=2, both=1)
    """
    packed = bits.pack(V)
    U = as_like(U, np.empty(0))
    if mask is not None:
        rows = observed(X, mask)
        made = bits.product(U, packed)
        parts = (rows.ones | rows.zeros, rows.ones, made & (rows.ones | rows.zeros), made & rows.ones)
        return Cells(*(int(bits.ones_of(part).sum()) for part in parts))
    total = Cells(math.prod(X.shape), 0, 0, 0)
    for rows, words in packed_blocks(X):
        total += Cells(0, *bits.count_cells(words, U[rows], packed))
    return total


def boolean_refit(X: Array, V: Array, *, sweeps: int = 3) -> Array:
    """Choose U for a given V, each row alone; see :func:`fedfactor.boolean.bit_matrix.refit`.

    Parameters
    ----------
    X : array or sparse matrix of 0 and 1, shape (n, m)
    V : array of 0 and 1, shape (k, m)
    sweeps : int
        Most sweeps of flips after the greedy choice.

    Returns
    -------
    array, shape (n, k)
        Zeros and ones of the library and type of X.

    Examples
    --------
    >>> import numpy as np
    >>> boolean_refit(np.array([[1.0, 1.0, 0.0]]), np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    array([[1., 0.]])
    """
    packed = bits.pack(V)
    out = np.zeros((X.shape[0], V.shape[0]), np.uint8)
    for rows, words in packed_blocks(X):
        out[rows] = bits.refit(words, packed, sweeps=sweeps)
    return as_like(out, X)


def packed_blocks(X: Array) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield slices of rows and these rows packed, a bounded number of words at a time."""
    if scipy.sparse.issparse(X):
        X = X.tocsr()
    n, m = X.shape
    step = max(1, _WORDS // max(1, -(-m // 64)))
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        yield rows, bits.pack(X if step >= n else X[rows])


def hashed_rows(X: Array, salt: np.ndarray) -> Array:
    """Return numbers in [0, 1) that look random but are a function of each row alone: ``(X saltᵀ mod 257) / 257``.

    Parameters
    ----------
    X : array or sparse matrix of 0 and 1, shape (n, m)
    salt : ndarray of int from 0 to 255, shape (k, m)
        Whole numbers this small add up without rounding in single precision, in any order, for rows of up to 65,536
        ones.

    Examples
    --------
    >>> import numpy as np
    >>> hashed_rows(np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([[200, 185]]))
    array([[0.49805447],
           [0.        ]])
    """
    return cross(X, as_like(salt, X)) % 257 / 257


def match_rows(V: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Reorder the rows of 0/1 `V` so that together they share most ones with those of `reference`.

    Returns
    -------
    ndarray of int, shape (k,)
        Row ``order[i]`` of V belongs to row i of the reference.

    Examples
    --------
    >>> import numpy as np
    >>> match_rows(np.array([[0, 1, 1], [1, 0, 0]]), np.array([[1, 0, 0], [0, 1, 0]]))
    array([1, 0])
    """
    # Between 0/1 rows the squared distance is |v| + |r| − 2|v ∧ r|, and the sizes add up to the same in any order.
    return align_rows(np.asarray(V, np.float64), np.asarray(reference, np.float64))[1]


def vote(counts: np.ndarray, voters: int, rule: str, tie: str = "one") -> np.ndarray:
    """Turn the number of clients that have a one in each cell into one Boolean matrix.

    Parameters
    ----------
    counts : array, shape (k, m)
        How many of the voters have a one.
    voters : int
        How many there are.
    rule : {"average", "majority", "or"}
        Average and majority are one rule but for ties, which happen when half of an even number of voters has a one.
    tie : {"one", "zero"}
        What the majority makes of a tie. The rounded average rounds half to even, which is zero.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.array([[0, 1, 2, 4]])
    >>> [vote(counts, 4, rule).astype(int).tolist() for rule in ("average", "majority", "or")]
    [[[0, 0, 0, 1]], [[0, 0, 1, 1]], [[0, 1, 1, 1]]]
    """
    # Counts may come from a noisy or masked sum, so they are compared as numbers and not as whole ones.
    if rule == "or":
        return counts > 0.5
    if rule == "average":
        return counts > 0.5 * voters
    if rule == "majority":
        return counts >= 0.5 * voters if tie == "one" and voters else counts > 0.5 * voters
    raise ValueError(f"vote={rule!r} is not known. Use 'average', 'majority' or 'or'.")
