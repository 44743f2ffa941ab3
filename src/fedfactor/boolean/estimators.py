"""Boolean factorizations with scikit-learn's manners: those of a federation first, then the solvers of one matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from fedfactor import algorithms
from fedfactor.boolean.estimator_base import BooleanTransformer
from fedfactor.boolean.felb import PAPER
from fedfactor.boolean.proximal_maps import Pull
from fedfactor.boolean.solver_estimators import BooleanSolver, SeededSolver
from fedfactor.boolean.solvers.asso import TAUS
from fedfactor.core.parameters import setting
from fedfactor.estimators.signatures import face


class AsPrinted(BooleanTransformer):
    """An estimator that also has the settings of the paper."""

    _printed: ClassVar[dict[str, Any]] = PAPER

    @classmethod
    def paper(cls, n_components: int = 2, **changes: Any) -> Self:
        """Return the method as printed in the paper, for comparisons.

        Parameters
        ----------
        n_components : int
            Number of components k.
        **changes
            Further parameters.

        Returns
        -------
        estimator
            Not fitted.
        """
        return cls(n_components, **{**cls._printed, **changes})


@face(algorithms.FELB)
class FELB(AsPrinted):
    """Federated Boolean factorization with an elastic-net regulariser around 0 and 1."""


@face(algorithms.FALB)
class FALB(AsPrinted):
    """FELB with a rate of its own for each cell: the closer to 0 or 1, the stronger the pull."""

    _printed: ClassVar[dict[str, Any]] = PAPER | {"eps": 0.0}


@face(algorithms.PooledBMF)
class PooledBMF(BooleanTransformer):
    """Boolean factorization as if all rows lay in one place, from sums alone."""


@face(algorithms.BooleanVotes)
class BooleanVotes(AsPrinted):
    """One-shot federated Boolean factorization: local solvers, then a vote on V."""

    # The published rule: positions are voted on as they are, and U is kept.
    _printed: ClassVar[dict[str, Any]] = {"align": "none", "refit": "none"}


@face()
class ASSO(BooleanSolver):
    """Boolean factorization from associations between columns; see :func:`fedfactor.boolean.solvers.asso.asso`."""

    _solver = "asso"
    tau: float | Sequence[float] = setting(
        "Threshold of the association; of several the best is kept.", default=TAUS, check=False
    )
    reward: float = setting("Weight of newly covered ones.", default=1.0, above=0)
    penalty: float = setting("Weight of newly covered zeros.", default=1.0, at_least=0)


@face()
class GreConD(BooleanSolver):
    """Boolean factorization from below by formal concepts; see :func:`fedfactor.boolean.solvers.grecond.grecond`."""

    _solver = "grecond"


@face()
class MEBF(BooleanSolver):
    """Boolean factorization by median expansion; see :func:`fedfactor.boolean.solvers.mebf.mebf`."""

    _solver = "mebf"
    share: float | Sequence[float] = setting(
        "How many rows of a tile a column must have; of several the best is kept.", default=0.8, check=False
    )
    leave: float = setting("Stop when at most this share of the ones is left.", default=0.05, at_least=0, below=1)


@face()
class ELBMF(SeededSolver):
    """Boolean factorization by proximal steps; see :func:`fedfactor.boolean.solvers.elbmf.elbmf`."""

    _solver = "elbmf"
    kappa: float = setting("Weight κ of the regulariser.", default=0.01, at_least=0)
    lam: float = setting("Weight λ of the regulariser.", default=0.02, at_least=0)
    rate: float = setting("Growth of λ in each step.", default=1.02, at_least=1)
    beta: float = setting("Inertia, below ½.", default=1e-4, at_least=0, below=0.5)
    max_iter: int = setting("Most alternating steps.", default=3000, at_least=1)
    tol: float = setting("Stop when the squared error moves less than this.", default=1e-8, at_least=0)

    def _options(self) -> dict[str, Any]:
        options = super()._options()
        weights = {name: options.pop(name) for name in ("kappa", "lam", "beta")}
        return {**options, "pull": Pull(**weights)}


@face()
class ZhangBMF(SeededSolver):
    """Boolean factorization by penalised NMF and thresholds; see :func:`fedfactor.boolean.solvers.zhang.zhang`."""

    _solver = "zhang"
    lam: float = setting("Penalty on numbers that are neither 0 nor 1.", default=1.0, at_least=0)
    growth: float = setting("Growth of the penalty in each iteration.", default=1.0, above=0)
    max_iter: int = setting("Multiplicative updates.", default=1000, at_least=1)
    full_grid: bool = setting("Search all 100 × 100 thresholds instead of coarse, then fine.", default=False)


@face()
class PRIMP(SeededSolver):
    """Boolean factorization by proximal steps and code length; see :func:`fedfactor.boolean.solvers.primp.primp`."""

    _solver = "primp"
    weight: float = setting("Weight of the penalty.", default=0.1, at_least=0)
    cost: Literal["error", "mdl"] = setting(
        "What thresholds are chosen by: wrong cells, or the length of a code.", default="mdl"
    )
    max_iter: int = setting("Most alternating steps.", default=1000, at_least=1)
    tol: float = setting(
        "Stop when the relative change of the squared error falls below this.", default=1e-8, at_least=0
    )
    full_grid: bool = setting("Search all 100 × 100 thresholds instead of coarse, then fine.", default=False)
