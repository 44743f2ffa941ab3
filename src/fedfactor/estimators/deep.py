"""FedDMF with a recommender's manners."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedfactor import algorithms
from fedfactor.core.errors import DataError
from fedfactor.data.interactions import Interactions, interactions_of
from fedfactor.data.partition import split_evenly
from fedfactor.engines.base import Engine
from fedfactor.engines.callbacks import watcher
from fedfactor.engines.run import engine_of, run
from fedfactor.estimators import _inputs
from fedfactor.estimators._recommender import FederatedRecommender, nobody_owns
from fedfactor.estimators._users import UserTable, new_ratings, number_of_items
from fedfactor.kernels.ratings import deep as dmf
from fedfactor.kernels.ratings.top_items import best_by_blocks


class DeepTable(UserTable):
    """Users of one owner, the item vectors it knows, and the network that joins them.

    Parameters
    ----------
    factors : DeepFactors
        What the owner kept.
    U : array of shape (n, d)
        User vectors: the owner's, or those of new users.
    seen, users, items
        As for :class:`UserTable`.
    """

    def __init__(self, factors: Any, U: Any, seen: Any, users: Any, items: Any) -> None:
        super().__init__(U, factors.V, seen, users, items, None)
        self.factors = factors
        self._b = dmf.item_part(factors.network, np.ascontiguousarray(factors.V.T))

    def places(self, users: Any, items: Any) -> tuple[np.ndarray, np.ndarray]:
        """Find rows and columns, −1 for ids that were not in fit; an item of which nobody sent a vector is refused."""
        rows, found = super().places(users, items)
        self._refuse(found[found >= 0])
        return rows, found

    def columns(self, items: Any) -> np.ndarray:
        """Find columns by item id; an item of which nobody sent a vector is refused."""
        found = super().columns(items)
        self._refuse(found)
        return found

    def _refuse(self, found: np.ndarray) -> None:
        lost = found[~np.asarray(self.factors.known)[found]]
        if len(lost):
            raise DataError(
                f"Nobody published a vector of item {self.items[lost].tolist()[0]!r}: its owners withhold it, or the "
                "run ended before its last exchange."
            )

    def at(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the probabilities of cells."""
        net = self.factors.network
        a = dmf.user_part(net, self.U[rows])
        return dmf.probability(dmf.pair_logits(net, a, self._b[columns]))

    def average(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the share of cells that are touched, for users and items that nobody knows."""
        return np.full(len(rows), self.seen.nnz / max(1, self.seen.shape[0] * self.seen.shape[1]))

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """Return the probabilities of all items for some users; −inf where no vector is known."""
        block = np.array(dmf.probabilities(self.factors.network, self.U[rows], self.V.T))
        block[:, ~np.asarray(self.factors.known)] = -np.inf
        return block

    def best(
        self,
        rows: np.ndarray,
        n: int,
        exclude_seen: bool = True,
        allowed: np.ndarray | None = None,
        shrink: float | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return columns of the best items, and their scores; a few users' scores exist at a time."""
        seen, n = self.seen[rows], number_of_items(n, self.V.shape[1])

        def scores(some: slice) -> np.ndarray:
            block = self.scores(rows[some])
            if allowed is not None:
                block[:, ~allowed] = -np.inf
            return block

        return best_by_blocks(scores, seen, n, skip_seen=exclude_seen)


class FedDMF(FederatedRecommender):
    """Deep matrix factorization over owners with partly overlapping catalogues, who match no users.

    The face of :class:`fedfactor.algorithms.FedDMF`, which says how it works and what travels.

    Parameters
    ----------
    n_components : int, default=32
        Length of user and item vectors.
    hidden : int, default=64
        Width of the layers.
    dropout : float, default=0.2
        Share of hidden units left out in a training step.
    epochs : int, default=30
        Passes over the data at most; one exchange after each.
    batch_size : int, default=2048
        Cells in a step.
    learning_rate : float, default=0.008
        Of Adam; rescale it with √batch_size.
    negatives : int or None, default=4
        Zeros drawn for every one; None: all zeros.
    init_scale : float, default=0.05
        Standard deviation of vectors at the start.
    start : {"common", "own"}, default="common"
        Start from draws that all clients know, or from each client's own.
    average : bool, default=False
        Go on from the mean vector of each common item.
    beta : float, default=0.0
        Weight of the alignment loss.
    margin : float, default=0.2
        Its margin.
    anchor : {"others", "mean"}, default="others"
        What the alignment loss pulls towards.
    swap : float, default=0.5
        How often others' vectors stand for own ones in training.
    refine : int, default=0
        Epochs at home after the exchange.
    rotate : bool, default=False
        Turn others' vectors into one's own space by an orthogonal map.
    share : {"items", "tower", "network"}, default="items"
        Which layers are averaged beside item vectors.
    validation : float, default=0.1
        Share of ones kept aside when ``patience`` is above 0.
    patience : int, default=0
        Epochs without a better validation loss before training ends; 0 uses all epochs.
    weight_decay : float, default=0.15
        Of user and item vectors.
    smooth : float, default=0.8
        Most weight of the past in the running mean of weights that is published and kept; 0 keeps the last weights.
    device : str, default="cpu"
        Where clients compute.
    rounds : int, optional
        Exchanges at most; by default as many as the method needs.
    n_clients : int, default=1
        Owners to whom users are dealt at random when neither the data nor ``groups`` say who owns them.
    engine : str or Engine, default="local"
        How messages travel.
    privacy : None, str or transforms, default=None
        What protects uploads on their way.
    random_state : int, RandomState, Generator or None, default=None
        Seed of every stream; None draws one, kept in ``run_.seed``.
    verbose : int, default=0
        1 or more: a bar on a terminal, lines in the log elsewhere.

    Attributes
    ----------
    items_ : ndarray of shape (m,)
        Item ids of all owners together.
    users_ : dict of str to ndarray
        User ids of each owner.
    held_ : dict of str to ndarray
        Item ids that each owner holds.
    client_factors_ : dict of str to array of shape (n_c, d)
        User vectors of each owner: features of its users, for predicting their attributes at home.
    run_ : Run
        History, traffic, time, errors by owner, and the seed.

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
    scale = None  # probabilities need none

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
        verbose: int = 0,
    ) -> None:
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
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, ratings: Any, y: Any = None, *, groups: Any = None, catalogues: Any = None, withheld: Any = None
    ) -> Self:
        """Learn from interactions that belong to several owners.

        Parameters
        ----------
        ratings : mapping of owner to ItemTable, or as for the other recommenders
            Of ratings it matters only that they are there.
        y : None
            Ignored.
        groups : str, mapping or sequence, optional
            Who owns which user.
        catalogues, withheld : mapping of owner to item ids, optional
            What each owner holds (by default what its users touched), and what it keeps to itself.

        Returns
        -------
        self
        """
        engine, seed = engine_of(self.engine), _inputs.draw_seed(self.random_state)
        for name in ("n_components", "n_clients"):
            _inputs.check_whole(name, getattr(self, name))
        found = interactions_of(ratings, groups, catalogues=catalogues, withheld=withheld)
        if self.n_clients > 1 and nobody_owns(ratings, groups, found.owners):
            found = deal_interactions(found, self.n_clients, seed)
        algorithm = self._method(**{field.name: getattr(self, field.name) for field in fields(self._method)})
        watch = watcher(self.verbose, type(self).__name__)
        options = {"rounds": self.rounds, "seed": seed, "privacy": self.privacy, "callbacks": watch}
        self._keep(run(algorithm, found.federation(), engine=engine, **options), found)
        return self

    def predict_proba(self, client: str, users: Any, items: Any) -> np.ndarray:
        """Return the probability of each (user, item) pair at one client, also for items that only others hold.

        Parameters
        ----------
        client : str
            The users' owner.
        users, items : sequences of ids of equal length, or single ids

        Returns
        -------
        array of shape (pairs,)
        """
        return self.predict(users, items, client=client)

    def fold_in(self, ratings: Any, *, client: str | None = None) -> DeepTable:
        """Find vectors of users who were not in fit, with one owner's network and item vectors; nothing is sent.

        Parameters
        ----------
        ratings : dict of item to rating, data frame, or sparse matrix
            Of one user (``dict``) or of several.
        client : str, optional
            The owner whose network is used; by default the first.

        Returns
        -------
        DeepTable
            With ``predict(users, items)`` and ``recommend(users, n)`` of its own; the user of a dict is called 0.
        """
        check_is_fitted(self)
        table = self._table(next(iter(self.tables_)) if client is None else client)
        R, users = new_ratings(ratings, table)
        R.data[:] = 1
        return DeepTable(table.factors, self.run_.algorithm.fold_in(R, table.factors), R, users, self.items_)

    def score(self, ratings: Any, y: Any = None, *, client: str | None = None) -> float:
        """Return F1 at one half, over pairs of known users and items whose ``rating`` is 0 (no interaction) or not.

        Parameters
        ----------
        ratings : data frame with user, item and rating
        y : None
            Ignored.
        client : str, optional
            The users' owner; needed only where two owners use one id.
        """
        ratings, found = self._compared(ratings, client)
        true, guess = ratings != 0, found > 0.5
        return 2 * float((true & guess).sum()) / max(1.0, float(true.sum() + guess.sum()))

    def _keep(self, result: Any, found: Interactions) -> None:
        self.run_ = result
        self.n_iter_ = result.rounds
        self.items_ = found.items
        self.users_ = {name: found.users[name] for name in sorted(found.users)}
        self.held_ = {name: found.items[columns] for name, columns in found.held.items()}
        self.components_ = result.V
        self.client_factors_ = {name: kept.U for name, kept in result.factors.items()}
        self.scale_, self._homes, self.n_rejected_ = None, None, 0
        self.support_ = sum(np.bincount(X.indices, minlength=X.shape[1]) for X in found.owners.values())
        self.tables_ = {
            name: self._make_table(kept.U, kept.V, found.owners[name], found.users[name], kept)
            for name, kept in result.factors.items()
        }

    def _make_table(self, U: Any, V: Any, seen: Any, users: Any, kept: Any) -> DeepTable:
        return DeepTable(kept, U, seen, users, self.items_)


def deal_interactions(found: Interactions, n_clients: int, seed: int) -> Interactions:
    """Deal the users of one owner at random to several, who all hold its items."""
    X, users = found.owners["0"], found.users["0"]
    labels = np.asarray(split_evenly(X.shape[0], n_clients, seed)).astype(str)
    rows = {name: np.flatnonzero(labels == name) for name in sorted(set(labels.tolist()))}
    owners, held = {k: X[v] for k, v in rows.items()}, {k: found.held["0"] for k in rows}
    hidden = {k: found.withheld["0"] for k in rows} if "0" in found.withheld else {}
    return Interactions(owners, {k: users[v] for k, v in rows.items()}, found.items, held, hidden)
