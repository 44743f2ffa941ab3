"""FedAvgNMF: every client factors its own rows for a while, and the server averages V."""

from __future__ import annotations

from typing import Literal

from fedfactor.core.parameters import declares_settings, setting
from fedfactor.nmf.fedprox import Averaging
from fedfactor.nmf.local_nmf import Solver


@declares_settings
class FedAvgNMF(Averaging):
    r"""Federated averaging of NMF: the baseline that most systems offer.

    Each client takes ``local_steps`` alternating steps on ``½‖X_c − U_c V_c‖²`` from the average it received and sends
    ``V_c``; the server averages. Clients with different rows drift apart, and components that mean different things are
    averaged with each other: compare :class:`~fedfactor.algorithms.PooledNMF`. This is
    :class:`~fedfactor.algorithms.FedProxNMF` with ``mu=0``.

    Notes
    -----
    Up and down per client and round: k m numbers. The relative error reported for a round is that of the average which
    the clients received in it.

    References
    ----------
    .. [1] H. B. McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS
       2017.

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> from fedfactor.algorithms import FedProxNMF
    >>> X = np.random.default_rng(0).random((30, 6))
    >>> runs = [fedfactor.run(method, {"a": X[:7], "b": X[7:]}, rounds=5, seed=0)
    ...         for method in (FedAvgNMF(2), FedProxNMF(2, mu=0))]
    >>> runs[0].V.shape, bool((runs[0].V == runs[1].V).all())
    ((2, 6), True)
    """

    n_components: int = setting("Rank k.", at_least=1)
    local_steps: int = setting(
        "Alternations (one sweep over U, one over V) between two exchanges.", default=10, at_least=1
    )
    local_solver: Solver = setting("Coordinate descent, projected gradient, or multiplicative updates.", default="hals")
    weights: Literal["rows", "equal"] = setting(
        "Average owners by their number of rows, as FedAvg does, or all alike.", default="rows"
    )
    tol: float = setting(
        "The run has converged when V moves by less than this share of its norm in three rounds in a row; 0 uses all "
        "rounds.",
        default=1e-4,
        at_least=0,
    )
