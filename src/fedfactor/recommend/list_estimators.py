"""Recommenders of lists and of items that only other clients hold."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fedfactor import algorithms
from fedfactor.core.errors import DataError
from fedfactor.engines.engine import Engine
from fedfactor.estimators.parameter_names import accept_other_names
from fedfactor.privacy.dp import asked_of
from fedfactor.recommend.incremental import KeepsUsers
from fedfactor.recommend.list_estimator_base import CatalogueRecommender
from fedfactor.recommend.user_table import DeepTable


@accept_other_names()
class PooledEASE(KeepsUsers):
    r"""Recommender from co-occurrences (EASE), with the result of pooled data, by one exchange of a Gram matrix.

    .. math:: \min_B \|X - X B\|^2 + \lambda\|B\|^2 \quad \text{with} \quad \mathrm{diag}(B) = 0

    Parameters
    ----------
    low_rank : int, at least 1 or "auto", optional
        None: the whole Gram matrix is sent. A number d: only pairs with the d heaviest items, and the others as
        expected by chance; the weights then have rank d off the diagonal. ``"auto"``: d for a tenth of the upload.
        For catalogues of a thousand items or more.
    ridge : float, above 0, or "auto", default="auto"
        Regularization λ of the weights. ``"auto"``: the value of least generalized cross-validation error, from the
        aggregated Gram matrix and the number of users; 40 for the low-rank form and under noise.
    counts : {"log", "binary", "raw"}, default="log"
        Meaning of a stored number r: :math:`\log_2(1 + r)`, 1, or r.
    balance : float in [0, 1], default=0.5
        Rows are divided by their norm to this power: 0 weighs users by their activity, 1 equally.
    min_users : int, at least 1, default=3
        Items of fewer users, over all clients, are left out and never recommended.
    min_pairs : int, at least 1, default=1
        Pairs of items with fewer common users are replaced by their expectation under independence. Values above 1
        send the numbers of common users beside the Gram matrix. Not with ``low_rank``.
    rounds : int, optional
        Maximum number of rounds; default 10.
    n_clients, random_state, verbose, engine, privacy, callbacks, checkpoint
        As in :func:`fedfactor.run`.

    Attributes
    ----------
    components_ : array of shape (m, m), or (d, m) for the low-rank form
        Weights of pairs of items.
    items_, users_, client_factors_, n_iter_, run_
        As in :class:`~fedfactor.PooledCF`.

    Notes
    -----
    Each client sends the m (m + 1) / 2 entries of its Gram matrix once (d m with ``low_rank``).

    Examples
    --------
    >>> import pandas as pd
    >>> from fedfactor import PooledEASE
    >>> likes = {"ann": "ab", "bob": "abc", "cat": "cd", "dan": "acd", "eve": "ab", "fay": "cd", "gus": "a"}
    >>> clicks = pd.DataFrame([(user, item) for user, all_ in likes.items() for item in all_], columns=["user", "item"])
    >>> owner = {user: "north" if user < "d" else "south" for user in likes}
    >>> model = PooledEASE(ridge=1.0, random_state=0).fit(clicks, groups=owner)
    >>> model.recommend("gus", n=1)[0].tolist()
    [['b']]
    """

    _method = algorithms.PooledEASE

    def __init__(
        self,
        low_rank: int | Literal["auto"] | None = None,
        *,
        ridge: float | Literal["auto"] = "auto",
        counts: Literal["log", "binary", "raw"] = "log",
        balance: float = 0.5,
        min_users: int = 3,
        min_pairs: int = 1,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None:
        super().__init__(rounds, n_clients, engine, privacy, random_state, verbose, callbacks, checkpoint)
        self.low_rank = low_rank
        self.ridge = ridge
        self.counts = counts
        self.balance = balance
        self.min_users = min_users
        self.min_pairs = min_pairs

    def _exchanges(self) -> int | None:
        """Return how many exchanges a private run pays for: those that take place."""
        if self.rounds is not None or asked_of(self.privacy) is None:
            return self.rounds
        return 1 if self.low_rank is None else 2


@accept_other_names()
class PooledRidge(CatalogueRecommender):
    r"""Recommender of items that only other clients hold: ridge regression on directions of common items.

    .. math:: w = (P^\top P + \lambda I)^{-1} P^\top x_{\text{item}}

    It takes the same input as :class:`fedfactor.FedDMF`.

    Parameters
    ----------
    n_components : int, at least 1, default=128
        Directions d; fewer where there are fewer common items.
    ridge : float, above 0, default=30.0
        Regularization λ of the coefficients.
    min_users : int, at least 1, default=3
        Items of fewer users of a client are not published, because coefficients of an item of one user describe
        that user.
    rounds : int, optional
        Maximum number of rounds; default 3.
    n_clients, random_state, verbose, engine, privacy, callbacks, checkpoint
        As in :func:`fedfactor.run`.

    Attributes
    ----------
    client_factors_ : dict of str to array of shape (n_c, d)
        Users along the directions.
    held_ : dict of str to ndarray
        Item ids of each client.
    items_, users_, components_, n_iter_, run_
        As in :class:`~fedfactor.PooledCF`.

    Notes
    -----
    Three exchanges: which items are common, their Gram matrix, and d coefficients of each item.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import PooledRidge
    >>> from fedfactor.data import ItemTable
    >>> X = np.random.default_rng(0).random((20, 6)) < 0.5
    >>> north = ItemTable(X[:10, :4], users=range(10), items=list("abcd"))
    >>> south = ItemTable(X[10:, 2:], users=range(10), items=list("cdef"))
    >>> model = PooledRidge(2, random_state=0).fit({"north": north, "south": south})
    >>> model.predict_proba("north", [3, 7], ["f", "a"]).shape
    (2,)
    """

    _method = algorithms.PooledRidge

    def __init__(
        self,
        n_components: int = 128,
        *,
        ridge: float = 30.0,
        min_users: int = 3,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None:
        super().__init__(rounds, n_clients, engine, privacy, random_state, verbose, callbacks, checkpoint)
        self.n_components = n_components
        self.ridge = ridge
        self.min_users = min_users

    def _guess(self, true: np.ndarray, found: np.ndarray) -> np.ndarray:
        if not true.any():
            raise DataError("No pair has an interaction, so there is nothing to find.")
        return found >= np.quantile(found, 1 - true.mean())


@accept_other_names()
class FedDMF(CatalogueRecommender):
    r"""Deep matrix factorization over clients with partly overlapping catalogues and no common users.

    .. math:: \tfrac1N \sum_{(u,i)} (f_c(p_u, q_i) - x_{ui})^2
        + \tfrac{\beta}{|P|} \sum_{i \in P} \max(1 - \cos(q_i, z_i), \mu)

    Parameters
    ----------
    n_components : int, at least 1, default=32
        Length of user and item vectors.
    hidden : int, at least 1, default=64
        Width of the layers.
    dropout : float in [0, 0.999], default=0.2
        Dropout rate of hidden units.
    epochs : int, at least 1, default=30
        Maximum number of passes over the data; one exchange after each.
    batch_size : int, at least 1, default=2048
        Cells in a step, ones and zeros.
    learning_rate : float, above 0, default=0.008
        Of Adam. Rescale it with √batch_size: 0.001 at 32 is 0.008 at 2048.
    negatives : int, at least 1 or None, default=4
        Zeros drawn in each epoch for every one; None: all zeros.
    init_scale : float, above 0, default=0.05
        Standard deviation of the initial vectors.
    start : {"common", "own"}, default="common"
        Initialization of networks and item vectors: common, or drawn by each client.
    average : bool, default=False
        Clients continue from the mean vector of each common item.
    beta : float, at least 0, default=0.0
        Weight of the alignment loss.
    margin : float in [0, 2], default=0.2
        Margin of the alignment loss.
    pairs : int, at least 1, or None, default=256
        Number of common items drawn in each step for the alignment loss; None: all of them, as eq. 4 is printed.
    anchor : {"others", "mean"}, default="others"
        Target of the alignment: the mean vector of the other clients, or of all.
    swap : float in [0, 1], default=0.5
        Share of the training cells of common items for which the vector of the other clients replaces the client's
        own.
    refine : int, at least 0, default=0
        Local epochs after the exchange, with fixed item vectors and the vectors of the other clients in place of
        own ones.
    rotate : bool, default=False
        Align the vectors of other clients by the orthogonal map that fits those of common items best.
    share : {"items", "tower", "network"}, default="items"
        Layers that are averaged in addition: none, those of the item side, or all.
    validation : float in [0, 0.9], default=0.1
        Share of the ones (with zeros drawn for them) that is held out when ``patience`` is above 0.
    patience : int, at least 0, default=0
        Epochs without a smaller validation loss after which training stops and the best epoch is restored; 0 uses
        all epochs and holds nothing out.
    weight_decay : float, at least 0, default=0.15
        Weight decay of user and item vectors, times the learning rate, in each step.
    smooth : float in [0, 0.999], default=0.8
        Maximum weight of the past in the running mean of weights over epochs; 0 uses the last weights.
    device : str, default="cpu"
        Where clients compute: ``"cpu"``, ``"cuda"``, ...
    rounds : int, optional
        Maximum number of rounds; by default as many as the method needs.
    n_clients, random_state, verbose, engine, privacy, callbacks, checkpoint
        As in :func:`fedfactor.run`.

    Attributes
    ----------
    client_factors_ : dict of str to array of shape (n_c, d)
        User vectors of each client, for example as features to predict attributes of its users locally.
    held_ : dict of str to ndarray
        Item ids of each client.
    items_, users_, components_, n_iter_, run_
        As in :class:`~fedfactor.PooledCF`.

    Notes
    -----
    Each epoch sends the vectors of the common items, d numbers each, in both directions. Requires PyTorch.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import FedDMF
    >>> from fedfactor.data import ItemTable
    >>> X = np.random.default_rng(0).random((20, 6)) < 0.5
    >>> north = ItemTable(X[:10, :4], users=range(10), items=list("abcd"))
    >>> south = ItemTable(X[10:, 2:], users=range(10), items=list("cdef"))
    >>> model = FedDMF(4, hidden=8, epochs=2, refine=1, random_state=0).fit({"north": north, "south": south})
    >>> model.predict_proba("north", [3, 7], ["f", "a"]).shape
    (2,)
    """

    _method = algorithms.FedDMF

    def __init__(
        self,
        n_components: int = 32,
        *,
        hidden: int = 64,
        dropout: float = 0.2,
        epochs: int = 30,
        batch_size: int = 2048,
        learning_rate: float = 0.008,
        negatives: int | None = 4,
        init_scale: float = 0.05,
        start: Literal["common", "own"] = "common",
        average: bool = False,
        beta: float = 0.0,
        margin: float = 0.2,
        pairs: int | None = 256,
        anchor: Literal["others", "mean"] = "others",
        swap: float = 0.5,
        refine: int = 0,
        rotate: bool = False,
        share: Literal["items", "tower", "network"] = "items",
        validation: float = 0.1,
        patience: int = 0,
        weight_decay: float = 0.15,
        smooth: float = 0.8,
        device: str = "cpu",
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None:
        super().__init__(rounds, n_clients, engine, privacy, random_state, verbose, callbacks, checkpoint)
        self.n_components = n_components
        self.hidden = hidden
        self.dropout = dropout
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.negatives = negatives
        self.init_scale = init_scale
        self.start = start
        self.average = average
        self.beta = beta
        self.margin = margin
        self.pairs = pairs
        self.anchor = anchor
        self.swap = swap
        self.refine = refine
        self.rotate = rotate
        self.share = share
        self.validation = validation
        self.patience = patience
        self.weight_decay = weight_decay
        self.smooth = smooth
        self.device = device

    def _table(self, kept: Any, seen: Any, users: Any) -> DeepTable:
        return DeepTable(kept, kept.U, seen, users, self.items_)
