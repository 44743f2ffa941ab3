"""Non-negative factorizations with scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fedfactor import algorithms
from fedfactor.core.federation import Federation, Missing, Shard
from fedfactor.core.protocol import LocalFactors
from fedfactor.core.run import Run
from fedfactor.core.tree import Array
from fedfactor.engines.base import Engine
from fedfactor.estimators._base import FederatedTransformer


class PooledNMF(FederatedTransformer):
    r"""Non-negative factorization as if all rows lay in one place, from sums alone.

    .. math:: \min_{U_c \ge 0,\, V \ge 0} \sum_c \tfrac12 \|X_c - U_c V\|^2

    The face of :class:`fedfactor.algorithms.PooledNMF`, which says how it works and what travels.

    Parameters
    ----------
    n_components : int, default=2
        Rank k. No rule can choose it without a look at the data, so the default is the smallest that tells rows apart.
    local_steps : int, default=5
        Sweeps of coordinate descent over U in each round.
    server_steps : int, default=10
        Sweeps over V in each round.
    momentum : bool, default=True
        Extrapolate V, with restarts.
    tol : float, default=1e-4
        Converged when three rounds in a row lower the loss by less than this share of it; 0 uses all rounds.
    loss : {"frobenius", "kullback-leibler"}, default="frobenius"
        Squared error, or the divergence that suits counts.
    start : {"auto", "wide", "random", "stacked"}, default="auto"
        Where V begins. Wide: two rounds with three times the components, folded by the server from sums alone. Stacked:
        owners factor their rows alone first, and the server sees each owner's sums. Auto: wide where it can be.
    alpha_U : float, default=0
        Weight of the penalty on U, times the number of features.
    alpha_V : float or "same", default="same"
        Weight of the penalty on V, times the number of rows. With 0 the rows of V keep norm 1.
    l1_ratio : float, default=0
        Share of L1 in the penalties; the rest is L2.
    n_private : int, default=0
        Components that each owner has for itself.
    private_penalty : float, default=0.1
        What keeps out of an owner's own components what all owners share.
    weights : {"rows", "equal"} or mapping of str to float, default="rows"
        What a row of each owner counts: 1; so that all owners count alike; or as given.
    ridge : float, default=0.03
        Penalty on U for rows with missing cells, without which predictions of missing cells can be anything.
    rounds : int, optional
        Rounds at most; by default 100.
    n_clients : int, default=1
        Owners to whom rows are dealt at random when neither X nor ``groups`` says who owns them.
    engine : str or Engine, default="local"
        How messages travel.
    privacy : str, dp(...), transform, or tuple of these, optional
        What protects uploads on their way: ``"secure-sum"``, :func:`fedfactor.dp`, ``"median"``; see
        :func:`fedfactor.run`. ``run_.privacy`` says who could see what.
    random_state : int, RandomState, Generator or None, default=None
        Seed of every stream; None draws one, kept in ``run_.seed``.
    missing_values : None, nan, number or "unstored", default=None
        None: NaN is an error and unstored sparse cells are zero. A value: such cells are missing. ``"unstored"``: only
        the stored cells of sparse matrices were observed.
    verbose : int, default=0
        1 or more: a bar on a terminal, lines in the log elsewhere.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, shared by all owners; rows have norm 1 (sum 1 for counts; with both penalties, the length that costs least).
    components_private_ : dict of str to array of shape (n_private, n_features)
        What each owner has for itself; empty without ``n_private``.
    client_factors_ : dict of str to array of shape (n_c, n_components)
        U of each owner. Only a simulation has them all.
    reconstruction_err_, relative_error_ : float
        ``‖X − UV‖``, and the same divided by ``‖X‖``, over observed cells. For counts the root of twice the
        divergence, and that divided by the same for rows that are flat.
    n_iter_ : int
        Rounds that were run.
    run_ : Run
        History, traffic, time, errors by owner, and the seed.
    n_components_, n_features_in_ : int
        The shape of V.
    feature_names_in_ : ndarray of str
        Only when the features have names.

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

    _method = algorithms.PooledNMF

    def __init__(
        self,
        n_components: int = 2,
        *,
        local_steps: int = 5,
        server_steps: int = 10,
        momentum: bool = True,
        tol: float = 1e-4,
        loss: Literal["frobenius", "kullback-leibler"] = "frobenius",
        start: Literal["auto", "wide", "random", "stacked"] = "auto",
        alpha_U: float = 0.0,
        alpha_V: float | Literal["same"] = "same",
        l1_ratio: float = 0.0,
        n_private: int = 0,
        private_penalty: float = 0.1,
        weights: Literal["rows", "equal"] | Mapping[str, float] = "rows",
        ridge: float = 0.03,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        missing_values: Missing = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.local_steps = local_steps
        self.server_steps = server_steps
        self.momentum = momentum
        self.tol = tol
        self.loss = loss
        self.start = start
        self.alpha_U = alpha_U
        self.alpha_V = alpha_V
        self.l1_ratio = l1_ratio
        self.n_private = n_private
        self.private_penalty = private_penalty
        self.weights = weights
        self.ridge = ridge
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.missing_values = missing_values
        self.verbose = verbose

    def _keep(self, result: Run, federation: Federation) -> None:
        super()._keep(result, federation)
        owned = {name: kept.V_private for name, kept in result.factors.items()}
        self.components_private_ = {name: V for name, V in owned.items() if V is not None}

    def _error(self, shard: Shard, U: Array, V: Array) -> tuple[float, int, float]:
        score = self.run_.algorithm.score(shard, LocalFactors(U, V), self.run_.down)
        return float(score.sse), int(score.n), float(score.total)


class FedAvgNMF(FederatedTransformer):
    """Federated averaging of NMF: owners factor their own rows for a while, and the server averages V.

    The baseline; the face of :class:`fedfactor.algorithms.FedAvgNMF`. Needs complete rows.

    Parameters
    ----------
    n_components : int, default=2
        Rank k. No rule can choose it without a look at the data, so the default is the smallest that tells rows apart.
    local_steps : int, default=10
        Alternations (one sweep over U, one over V) between two exchanges.
    local_solver : {"hals", "gradient", "multiplicative"}, default="hals"
        Coordinate descent, projected gradient, or multiplicative updates.
    weights : {"rows", "equal"}, default="rows"
        Average owners by their number of rows, or all alike.
    tol : float, default=1e-4
        Converged when V moves by less than this share of its norm in three rounds in a row; 0 uses all rounds.
    rounds : int, optional
        Rounds at most; by default 50.
    n_clients : int, default=1
        Owners to whom rows are dealt at random when neither X nor ``groups`` says who owns them.
    engine : str or Engine, default="local"
        How messages travel.
    privacy : str, dp(...), transform, or tuple of these, optional
        What protects uploads on their way: ``"secure-sum"``, :func:`fedfactor.dp`, ``"median"``; see
        :func:`fedfactor.run`. ``run_.privacy`` says who could see what.
    random_state : int, RandomState, Generator or None, default=None
        Seed of every stream; None draws one, kept in ``run_.seed``.
    missing_values : None, default=None
        For the sake of one signature: this method refuses rows with missing cells.
    verbose : int, default=0
        1 or more: a bar on a terminal, lines in the log elsewhere.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, shared by all owners.
    client_factors_ : dict of str to array of shape (n_c, n_components)
        U of each owner. Only a simulation has them all.
    reconstruction_err_, relative_error_ : float
        ``‖X − UV‖``, and the same divided by ``‖X‖``.
    n_iter_ : int
        Rounds that were run.
    run_ : Run
        History, traffic, time, errors by owner, and the seed.
    n_components_, n_features_in_ : int
        The shape of V.
    feature_names_in_ : ndarray of str
        Only when the features have names.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import FedAvgNMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((30, 2)) @ rng.random((2, 6))
    >>> model = FedAvgNMF(n_components=2, n_clients=3, tol=0, random_state=0).fit(X)
    >>> model.transform(X).shape, sorted(model.client_factors_)
    ((30, 2), ['0', '1', '2'])
    """

    _method = algorithms.FedAvgNMF

    def __init__(
        self,
        n_components: int = 2,
        *,
        local_steps: int = 10,
        local_solver: Literal["hals", "gradient", "multiplicative"] = "hals",
        weights: Literal["rows", "equal"] = "rows",
        tol: float = 1e-4,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        missing_values: Missing = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.local_steps = local_steps
        self.local_solver = local_solver
        self.weights = weights
        self.tol = tol
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.missing_values = missing_values
        self.verbose = verbose
