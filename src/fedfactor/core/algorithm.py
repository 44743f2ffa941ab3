"""The contract between algorithms and engines.

An algorithm defines *what* is computed and *who sends what*; an engine defines how it is sent. Algorithms are frozen
dataclasses whose fields are settings and whose methods are pure: the same arguments give the same results, on every
engine, in every order.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedfactor.core.pytree import Array, Tree, public, record
from fedfactor.core.random_streams import round_stream

if TYPE_CHECKING:
    from fedfactor.core.client_data import Shard
    from fedfactor.core.wire import Spec


class Uplink(StrEnum):
    """What the server needs of the uploads of one kind."""

    SUM = "sum"
    """Their leaf-wise sum."""
    GATHER = "gather"
    """Each of them."""
    GROUP = "group"
    """The sums over groups of clients."""


class Domain(StrEnum):
    """Values that an algorithm takes."""

    NONNEGATIVE = "nonnegative"
    BINARY = "binary"
    REAL = "real"


class Layout(StrEnum):
    """What clients hold."""

    ROWS = "rows"
    """Rows of one matrix."""
    GRID = "grid"
    """Rows and columns of one matrix."""
    BLOCKS = "blocks"
    """Blocks of one matrix on a grid."""


@dataclass(frozen=True, slots=True)
class Meta:
    """What every party may know before round 0.

    ``blocks`` gives, for a matrix on a grid, where each client's block is: its row and column of the grid, then
    its first row of the matrix and the one after its last, and the same for columns.
    """

    n_features: int
    clients: tuple[str, ...]
    dtype: str = "float64"
    masked: bool = False
    n_rows: int | None = None
    blocks: tuple[tuple[int, ...], ...] | None = None

    @property
    def n_clients(self) -> int:
        """Number of clients in the federation, whether or not they take part in a given round."""
        return len(self.clients)


@dataclass(frozen=True, slots=True)
class Round:
    """Where a run stands, and its only source of randomness.

    Streams are keyed by (seed, client name, round, stream name): they do not depend on the engine, on the order of
    calls or on who else takes part.

    Examples
    --------
    >>> at = Round(seed=7, index=0, client="north")
    >>> at.rng("init").integers(100) == at.rng("init").integers(100)
    np.True_
    >>> at.shared_rng("sketch").random() == Round(7, 0, "south").shared_rng("sketch").random()
    True
    """

    seed: int
    index: int
    client: str | None = None
    participants: tuple[str, ...] = ()

    def rng(self, name: str) -> np.random.Generator:
        """Stream of this party alone (the server's, when ``client`` is None)."""
        return round_stream(self.seed, "server" if self.client is None else f"client {self.client}", self.index, name)

    def shared_rng(self, name: str) -> np.random.Generator:
        """Stream that is equal at all parties."""
        return round_stream(self.seed, "shared", self.index, name)


@dataclass(frozen=True, slots=True)
class Scatter:
    """Downloads that differ by client, keyed by client name: one for each, also for those who did not come."""

    items: Mapping[str, Any]


def download_for(down: Tree, client: str) -> Tree:
    """Pick what one client receives: its own part of a :class:`Scatter`, else the broadcast."""
    return down.items[client] if isinstance(down, Scatter) else down


def one_of(down: Tree) -> Tree:
    """Pick any part of a :class:`Scatter`, all of which are of one kind (None: it has none), else the broadcast."""
    return next(iter(down.items.values()), None) if isinstance(down, Scatter) else down


def settings_of(algorithm: Any) -> dict[str, Any]:
    """Write an algorithm's fields as plain data: a rank that came out of a NumPy array is a number like any other.

    Examples
    --------
    >>> from fedfactor.algorithms import PooledNMF
    >>> settings_of(PooledNMF(np.int64(3)))["n_components"]
    3
    """
    return {name: _plain(value) for name, value in asdict(algorithm).items()}


def _plain(value: Any) -> Any:
    whole: Any = value
    if isinstance(value, np.generic):
        return whole.item()
    if isinstance(value, np.ndarray):  # such as a V to start at: what it is, not all of it
        return f"sha256:{hashlib.sha256(whole.tobytes()).hexdigest()}"
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in whole.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in whole] if isinstance(value, list) else tuple(_plain(part) for part in whole)
    return whole


def algorithm_tag(kind: type) -> str:
    """Return the identifier of an algorithm in files and between processes: where it is imported from.

    Algorithms of this package are named by their public module, whichever file defines them.

    Examples
    --------
    >>> from fedfactor.algorithms import PooledNMF
    >>> algorithm_tag(PooledNMF)
    'fedfactor.algorithms:PooledNMF'
    """
    module = kind.__module__
    if module.startswith("fedfactor.") and not module.startswith("fedfactor.testing."):
        module = "fedfactor.algorithms"
    return f"{module}:{kind.__qualname__}"


@record("core.LocalFactors")
class LocalFactors:
    """What a client keeps at the end: its private rows of U, and the shared V.

    Methods that give clients components of their own put them into ``V_private`` (p × m), and their part of the rows
    into ``U_private`` (n × p): the rows are ``U V + U_private V_private``. A node that has some columns of V alone
    lists them in ``columns``; one of a grid, where other nodes have the same rows, lists in ``rows`` those of its U.
    """

    U: Array
    V: Array
    columns: Array | None = None
    V_private: Array | None = None
    U_private: Array | None = None
    rows: Array | None = None

    def first_of(self, axis: int) -> bool:
        """Return whether this node writes U (axis 1) or V (axis 0) for its line of a grid, or is on none."""
        line = self.columns if axis else self.rows
        return self.rows is None or line is None or (line.size > 0 and int(line[0]) == 0)


@record("core.Score")
class Score:
    """An error that adds up over clients: summed squares of the residual, cells counted, summed squares of the data."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    sse: Array
    n: Array = public()
    total: Array = public()

    @classmethod
    def of(cls, sse: float, n: float, total: float) -> Score:
        """Build a score from plain numbers."""
        return cls(*(np.asarray(float(value)) for value in (sse, n, total)))

    @property
    def relative_error(self) -> float:
        """``‖X − UV‖ / ‖X‖`` (0 when there is nothing to explain)."""
        return float(np.sqrt(self.sse / self.total)) if float(self.total) > 0 else 0.0


def uplink_of(message: Tree) -> Uplink | None:
    """Return how an upload is combined, None for a message from the server."""
    return getattr(message, "uplink", None)


class Algorithm(ABC):
    """A federated factorization as pure functions over explicit state.

    Subclasses are frozen dataclasses, one file each, and never inherit from one another; what two share is a kernel.
    States and messages are :func:`~fedfactor.core.pytree.record` classes. Each upload class declares ``uplink``:
    ``"sum"`` when the server needs only the leaf-wise sum of all uploads, ``"gather"`` when it must see each one,
    ``"group"`` when what a client needs next is the sum over its own group alone.

    What some algorithms can do beyond this contract are capabilities, each a Protocol beside its user:
    :mod:`fedfactor.engines.capabilities`, and others in the packages that ask for them.
    """

    __slots__ = ()

    __dataclass_fields__: ClassVar[dict[str, Any]]
    domain: ClassVar[Domain] = Domain.NONNEGATIVE
    handles_missing: ClassVar[bool] = False
    handles_tensors: ClassVar[bool] = False
    layout: ClassVar[Layout] = Layout.ROWS
    default_rounds: ClassVar[int] = 100

    @abstractmethod
    def messages(self, meta: Meta) -> dict[type, Spec]:
        """List every message this configuration can send, up and down, with the dtype and shape of each leaf."""

    @abstractmethod
    def init_server(self, meta: Meta, at: Round) -> tuple[Tree, Tree]:
        """Return the first server state and the first download."""

    @abstractmethod
    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Tree:
        """Return a client's first state."""

    @abstractmethod
    def client_step(self, shard: Shard, state: Tree, down: Tree, at: Round) -> tuple[Tree, Tree]:
        """Work on one's own rows; return the new state and the upload."""

    @abstractmethod
    def server_step(self, state: Tree, up: Tree, at: Round) -> tuple[Tree, Tree]:
        """Combine the sum of uploads (or the mapping name → upload for ``gather``); return new state and download.

        For ``group``, `up` maps each client to the sum over its group. An engine may take this step wherever a group
        is, with the clients there: the state must come out the same whichever they are, and the download is a
        :class:`Scatter` to them.
        """

    @abstractmethod
    def finish(self, shard: Shard, state: Tree, down: Tree) -> LocalFactors:
        """Return what the client keeps. Local: nothing is sent."""

    @abstractmethod
    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Return U for rows that were not in the run."""

    @abstractmethod
    def score(self, shard: Shard, state: Tree, down: Tree) -> Score:
        """Return this client's summable error under the download."""

    def check(self, meta: Meta) -> None:
        """Raise when the settings cannot serve such data; called before any work."""

    def sensitivity(self, meta: Meta) -> tuple[str, float] | None:
        """Name the unit and the largest Euclidean change that one such unit can make to the sum of all uploads.

        None when nothing but clipping whole uploads bounds it.
        """
        return None

    def doubt(self, up: Tree) -> str:
        """Return why an upload cannot be true, or nothing. Engines ask this of each upload that they see in clear."""
        return ""

    def accepts(self, down: Tree, meta: Meta) -> str:
        """Return why no honest server would send such a download, or nothing. Asked before rows are touched.

        Clients across a network ask this of every download, because a server that may send anything chooses which rows
        speak: with negative entries in V, for example, only rows of one pattern answer. Form and finite values are
        checked elsewhere. The answer must not depend on rows.
        """
        return ""

    def settle(self, state: Tree, down: Tree) -> Tree:
        """Return the download that clients finish with; by default the one that was to go out next."""
        return down

    def converged(self, state: Tree) -> bool:
        """Return whether further rounds would not help."""
        return False

    def report(self, state: Tree) -> dict[str, float]:
        """Figures of the last round that the server knows anyway, for the history and the progress bar."""
        return {}
