"""FedDMF: deep factorization of users × items whose clients share item vectors, and no users."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal, cast

import numpy as np

from fedfactor.core.algorithm import Algorithm, Domain, LocalFactors, Meta, Round, Score
from fedfactor.core.client_data import Shard
from fedfactor.core.client_items import held_columns, open_columns
from fedfactor.core.download_validation import odd_columns, odd_numbers
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array
from fedfactor.core.wire import Spec
from fedfactor.recommend.feddmf import network as dmf
from fedfactor.recommend.feddmf import steps, training
from fedfactor.recommend.feddmf.messages import (
    Anchor,
    Catalogue,
    DeepFactors,
    Done,
    Hello,
    Holdings,
    Local,
    Publish,
    Server,
    Vectors,
)
from fedfactor.recommend.feddmf.negative_sampling import ones_of, training_cells


@declares_settings
class FedDMF(Algorithm):
    r"""Deep matrix factorization whose clients share vectors of common items, and match no users.

    Every client has a network :math:`f_c` of its own, user vectors :math:`p_u` and item vectors :math:`q_i`, and
    minimises over its own cells

    .. math:: \tfrac1N \sum_{(u,i)} (f_c(p_u, q_i) - x_{ui})^2
        + \tfrac{\beta}{|P|} \sum_{i \in P} \max(1 - \cos(q_i, z_i), \mu)

    where P are the items it has in common with others and :math:`z_i` their vectors of the last epoch. A user's taste
    for an item that only others hold is :math:`f_c(p_u, q_i)` with the vector that they publish at the end.

    Notes
    -----
    Up and down per client and epoch: ``|P| d`` numbers; once at the end, m d numbers. Layers, user vectors and cells
    never leave, unless ``share`` says so; items marked as withheld never do. Uploads are sums, so secure aggregation
    apply.

    Where we differ from the paper: its threshold of 1 on a probability cannot be met, 0.5 is meant; optimiser, dropout
    rate and negatives are not given there. :meth:`paper` has its settings; ours here are those that did best on the
    items of others (see the page on the paper). For more than two clients the anchor is the mean of the others.

    Same bits again on one machine: clients compute on one CPU thread, whatever the engine. On CUDA sums may differ in
    the last place.

    References
    ----------
    .. [1] M. Cheung, "FedDMF: Privacy-preserving user attribute prediction using deep matrix factorization",
       arXiv:2312.15420, 2023.

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = (np.random.default_rng(0).random((40, 9)) < 0.4) * 1.0
    >>> result = fedfactor.run(FedDMF(4, hidden=8, epochs=2), {"a": X[:15], "b": X[15:]}, seed=0)
    >>> result.rounds, result.factors["a"].U.shape, result.V.shape
    (4, (15, 4), (4, 9))
    """

    n_components: int = setting("Length of user and item vectors.", default=32, at_least=1)
    hidden: int = setting("Width of the layers.", default=64, at_least=1)
    dropout: float = setting(
        "Share of hidden units left out in a training step.", default=0.2, at_least=0, at_most=0.999
    )
    epochs: int = setting("Passes over the data at most; one exchange after each.", default=30, at_least=1)
    batch_size: int = setting("Cells in a step, ones and zeros mixed.", default=2048, at_least=1)
    learning_rate: float = setting(
        "Of Adam. Rescale it with √batch_size: 0.001 at 32 is 0.008 at 2048.", default=0.008, above=0
    )
    negatives: int | None = setting(
        "Zeros drawn again in each epoch for every one: evenly among the owner's zero cells. None: all of them.",
        default=4,
        at_least=1,
    )
    init_scale: float = setting("Standard deviation of vectors at the start.", default=0.05, above=0)
    start: Literal["common", "own"] = setting(
        "Networks and item vectors start from draws that all owners know, or from each owner's own.", default="common"
    )
    average: bool = setting("Owners go on from the mean vector of each common item.", default=False)
    beta: float = setting("Weight of the alignment loss; 0 leaves it out.", default=0.0, at_least=0)
    margin: float = setting("Margin of the alignment loss.", default=0.2, at_least=0, at_most=2)
    pairs: int | None = setting(
        "Common items drawn in each step, with replacement, of which the alignment loss takes the mean: unbiased, and "
        "faster where many items are common. None: all of them, as eq. 4 is printed.",
        default=256,
        at_least=1,
    )
    anchor: Literal["others", "mean"] = setting(
        "Vectors are pulled towards the mean of the others (the other one's, for two owners) or of all.",
        default="others",
    )
    swap: float = setting(
        "Share of the training cells of common items in which the others' vector stands for the owner's own: the "
        "network learns to read vectors that it did not make.",
        default=0.5,
        at_least=0,
        at_most=1,
    )
    refine: int = setting(
        "Epochs at home after the exchange, with item vectors fixed and the others' vectors in the place of own ones.",
        default=0,
        at_least=0,
    )
    rotate: bool = setting(
        "Turn others' vectors by the orthogonal map that takes those of common items nearest to one's own.",
        default=False,
    )
    share: Literal["items", "tower", "network"] = setting(
        "What else is averaged: nothing, the layers of the item side, or all layers (FedAvg of all but user vectors).",
        default="items",
    )
    validation: float = setting(
        "Share of ones (with zeros drawn for them) held out when ``patience`` is above 0.",
        default=0.1,
        at_least=0,
        at_most=0.9,
    )
    patience: int = setting(
        "Epochs without a better loss on what was held out, over all owners, after which training ends and every "
        "client returns to the best epoch; 0 uses all epochs and keeps nothing aside.",
        default=0,
        at_least=0,
    )
    weight_decay: float = setting(
        "Of user and item vectors, times the learning rate, in each step.", default=0.15, at_least=0
    )
    smooth: float = setting(
        "Owners judge, publish and keep a running mean of their weights over epochs, in which the past has at most "
        "this weight; 0 keeps the last weights. Nothing of it travels before the end.",
        default=0.8,
        at_least=0,
        at_most=0.999,
    )
    device: str = setting('Where owners compute: ``"cpu"``, ``"cuda"``, ...', default="cpu")

    domain: ClassVar[Domain] = Domain.BINARY
    default_rounds: ClassVar[int] = 10_000

    @classmethod
    def paper(cls, n_components: int = 32, **changes: Any) -> FedDMF:
        """Return the paper's settings: batches of 32, 30 epochs, eq. 4 over all common pairs, independent starts.

        Other readings of the print: ``negatives=None`` (all zeros are training data, as "0 otherwise" may mean);
        ``dropout``, ``init_scale`` and the optimizer (Adam here) are not given.
        """
        literal: dict[str, Any] = {
            "epochs": 30,
            "batch_size": 32,
            "learning_rate": 0.001,
            "init_scale": 1.0,
            "start": "own",
            "average": False,
            "beta": 100.0,
            "margin": 0.2,
            "pairs": None,
            "swap": 0.0,
            "refine": 0,
            "weight_decay": 0.0,
            "smooth": 0.0,
        }
        return cls(n_components, **{**literal, **changes})

    def check(self, meta: Meta) -> None:
        """Refuse a missing torch and a missing device, before any work."""
        training.check_device(self.device)

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """List what may travel: holdings, vectors of common items, vectors that are published."""
        return steps.messages(self, meta)

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Hello]:
        """Know nothing yet, and ask who holds what."""
        d = self.n_components
        zero = np.int64(0)
        empty = np.zeros((0, d), meta.dtype)
        state = Server(
            np.zeros(0, np.int64), empty, np.zeros(0, meta.dtype), zero, np.float64(np.inf), zero, np.float64(0)
        )
        return state, Hello(np.int64(d))

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Draw vectors and layers, from streams common to all or one's own; draw the validation set."""
        common = self.start == "common"
        rng = at.shared_rng if common else at.rng
        items = rng("items").standard_normal((meta.n_features, self.n_components))[held_columns(shard)]
        users = at.rng("users").standard_normal((shard.n_rows, self.n_components))
        weights = dmf.draw_network(self.n_components, self.hidden, rng("network"), meta.dtype)
        weights |= {
            "P": (self.init_scale * users).astype(meta.dtype),
            "Q": (self.init_scale * items).astype(meta.dtype),
        }
        none = {name: np.zeros_like(value) for name, value in weights.items()}
        cells, labels = steps.set_aside(self, shard, at.rng("validation"))
        best, mean = (weights if asked else None for asked in (self.patience, self.smooth))
        return Local(weights, none, none, np.int64(0), np.int64(-1), np.bool_(False), cells, labels, best, mean)

    def client_step(self, shard: Shard, state: Local, down: Any, at: Round) -> tuple[Local, Any]:
        """Answer what the server asks."""
        match down:
            case Hello():
                return state, Holdings(steps.marks(open_columns(shard), shard.n_features, state.weights["Q"].dtype))
            case Anchor():
                return self._epoch(shard, state, down, at)
            case Publish():
                state = steps.back_to_best(state, bool(down.keep))
                return state, steps.publish(shard, state)
            case Catalogue():
                return self._refine(shard, state, down, at), Done(np.int64(1))
            case _:
                raise TypeError(f"FedDMF clients do not know {type(down).__name__}.")

    def _epoch(self, shard: Shard, state: Local, down: Anchor, at: Round) -> tuple[Local, Vectors]:
        """Take in what the others sent, pass once over the cells, send vectors of the common items."""
        if self.patience and bool(down.keep):
            state = replace(state, best=steps.model(state))
        place, z, mean = steps.common_part(shard, state, down)
        weights = dict(state.weights)
        if self.average and len(place):
            weights["Q"] = weights["Q"].copy()
            weights["Q"][place] = mean
        if down.net is not None and int(down.seen_in) >= 0:
            weights |= down.net
        state = replace(state, weights=weights)
        state = self._pass(shard, state, place, mean if self.anchor == "mean" else z, at, self.swap)
        state = steps.smoothed(self, replace(state, sent_in=np.int64(at.index)), at.index)
        sse, n = steps.validate(shard, state) if self.patience else (None, None)
        return state, steps.vectors(self, shard, state, down.items, sse, n)

    def _refine(self, shard: Shard, state: Local, down: Catalogue, at: Round) -> Local:
        """Go on at home with all item vectors fixed, reading the others' vectors wherever there are any."""
        if not self.refine:
            return state
        place, z = steps.others_published(self, shard, state, down)
        for epoch in range(self.refine):
            state = self._pass(shard, state, place, z, at, 1.0, fixed=("Q",), stream=f"refine {epoch}")
        return state

    def _pass(
        self,
        shard: Shard,
        state: Local,
        place: Array,
        z: Array,
        at: Round,
        swap: float,
        fixed: tuple[str, ...] = (),
        stream: str = "epoch",
    ) -> Local:
        """Pass once over all ones and freshly drawn zeros."""
        columns = held_columns(shard)
        size = shard.n_rows * len(columns)
        ones = ones_of(shard.X, columns)
        hidden = steps.hidden_cells(shard, state, columns)
        cells, y = training_cells(ones, size, self.negatives, at.rng(f"{stream} cells"), hidden)
        if not len(cells):
            return state
        rows, items = np.divmod(cells, len(columns))
        seed = int(at.rng(f"{stream} noise").integers(2**62))
        aligned = (place, z) if len(place) else None
        return training.train(self, state, (rows, items, y), aligned, swap, fixed, seed)

    def accepts(self, down: Hello | Anchor | Publish | Catalogue, meta: Meta) -> str:
        """Expect items in order with a vector each, of any sign and size, and no more clients than there are."""
        d = self.n_components
        odd = odd_numbers(down, {"n_components": (d, d), "count": (0.0, meta.n_clients)})
        if odd or not isinstance(down, Anchor):
            return odd
        return odd_columns(down.items, meta.n_features, (down.total, 0), (down.count, 0))

    def server_step(self, state: Server, up: Any, at: Round) -> tuple[Server, Any]:
        """Add up holdings, then vectors epoch by epoch, then what is published."""
        return steps.server_step(self, state, up, at)

    def converged(self, state: Server) -> bool:
        """Return whether everything has been published (and read at home)."""
        return state.over is not None and bool(state.over)

    def settle(self, state: Server, down: Any) -> Any:
        """Finish with the published vectors, where the run came so far."""
        return down if state.published is None else Catalogue(state.published, state.holders)

    def report(self, state: Server) -> dict[str, float]:
        """Return the validation loss, where there is one."""
        return {"validation_loss": float(state.loss)} if self.patience and float(state.loss) > 0 else {}

    def finish(self, shard: Shard, state: Local, down: Any) -> DeepFactors:
        """Keep user vectors, the network, own item vectors, and the others' for items that one does not hold."""
        return steps.finish(self, shard, state, down)

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Find vectors of new users by gradient steps on all their cells, the rest of the model being fixed."""
        return training.fold_in(self, X, cast("DeepFactors", factors))

    def score(self, shard: Shard, state: Local | DeepFactors, down: Any) -> Score:
        """Measure the squared error of the probabilities over all cells of the items that the client holds."""
        factors = state if isinstance(state, DeepFactors) else self.finish(shard, state, down)
        return steps.score(shard, factors)
