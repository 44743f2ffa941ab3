"""Non-negative factorizations with scikit-learn's manners."""

from __future__ import annotations

from fedfactor import algorithms
from fedfactor.core.algorithm import LocalFactors
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.pytree import Array
from fedfactor.core.run import Run
from fedfactor.estimators.base import FederatedTransformer
from fedfactor.estimators.signatures import Restarts, face
from fedfactor.nmf.incremental_fit import GoesOn


class OwnComponents(FederatedTransformer):
    """An estimator whose owners may have components of their own.

    Attributes
    ----------
    components_private_ : dict of str to array of shape (p, n_features)
        Components that only one owner has, by owner; empty where the settings ask for none.
    """

    def _adopt(self, result: Run, federation: Federation) -> None:
        super()._adopt(result, federation)
        owned = {name: kept.V_private for name, kept in result.factors.items()}
        self.components_private_ = {name: V for name, V in owned.items() if V is not None}


@face(algorithms.PooledNMF)
class PooledNMF(Restarts, GoesOn, OwnComponents):
    """Non-negative factorization as if all rows lay in one place, from sums alone.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, shared by all owners; rows have norm 1 (sum 1 for counts; with both penalties, the length that costs least).
    reconstruction_err_, relative_error_ : float
        ``‖X − UV‖``, and the same divided by ``‖X‖``, over observed cells. For counts the root of twice the
        divergence, and that divided by the same for rows that are flat.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import PooledNMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((30, 2)) @ rng.random((2, 6))
    >>> model = PooledNMF(n_components=2, random_state=0).fit(X, groups=["north"] * 10 + ["south"] * 20)
    >>> model.components_.shape, model.client_factors_["north"].shape
    ((2, 6), (10, 2))
    >>> model.relative_error_ < 0.01
    True
    """

    def _error(self, shard: Shard, U: Array, V: Array) -> tuple[float, int, float]:
        score = self.run_.algorithm.score(shard, LocalFactors(U, V), self.run_.down)
        return float(score.sse), int(score.n), float(score.total)


@face(algorithms.FedAvgNMF)
class FedAvgNMF(FederatedTransformer):
    """Federated averaging of NMF: owners factor their own rows for a while, and the server averages V. The baseline."""


@face(algorithms.FedProxNMF)
class FedProxNMF(FederatedTransformer):
    """Federated averaging of NMF whose owners are held near the average."""


@face(algorithms.OneShotNMF)
class OneShotNMF(FederatedTransformer):
    """Factor everywhere, combine once: every owner solves NMF alone, then components are aligned and averaged."""

    _how = "n_components=2, n_clients=3, random_state=0"


@face(algorithms.FNMF)
class FNMF(OwnComponents):
    """Coherent federated NMF: components are aligned before they are averaged.

    With ``alignment="lap_rho"`` or ``"sinkhorn_rho"`` owners may have components of their own.

    Notes
    -----
    With ``*_rho`` only components that at least two owners support are in ``components_``, so ``n_components_`` may be
    smaller than ``n_components``. ``transform(X, client=name)`` has a column for each shared component, and after them
    one for each private component of that owner.
    """
