"""Secure aggregation as a link of a channel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from fedfactor.core.algorithm import Algorithm, Meta, Round, Uplink
from fedfactor.core.entropy import Entropy
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.flattened_upload import Parcel
from fedfactor.core.pytree import Tree
from fedfactor.core.transforms import Opening, Transform
from fedfactor.core.wire import Spec
from fedfactor.privacy.secure_aggregation.masked_sum import SecureClient, least_threshold
from fedfactor.privacy.secure_aggregation.phases import SumClient, SumServer, read_words, size_of, words_of
from fedfactor.privacy.secure_aggregation.primitives import Identity

if TYPE_CHECKING:
    from fedfactor.privacy.pipeline import Channel

__all__ = ["SecureSum", "sum_securely"]


@dataclass(frozen=True, slots=True)
class SecureSum(Transform):
    """Show the server the sum of uploads, and no single one.

    Parameters
    ----------
    min_clients : int
        Fewest clients in a sum; each client holds the server to it. Below it the round is left, with nothing revealed.
    threshold : float
        Share of the clients, above one half, whose help unmasks a sum: as many may be lost in a round as are beyond it,
        and fewer colluding clients cannot help the server to a single upload.
    fractional_bits : int
        Precision of exact sums, ``2^-fractional_bits``; with noise its grid is used instead.
    allow_dropouts : bool
        Go on when clients drop out in a run without noise. Two sums of different cohorts differ by what the missing
        client sends, so this is refused by default.
    gathered : {"refuse", "clear"}
        What becomes of uploads that the server must see one by one: a method that has such is refused, or they travel
        in clear, beside secure aggregation of all others.

    Notes
    -----
    *Holds* against a server that follows the protocol and looks at all it gets, with the help of fewer clients than
    the threshold t. Keys are signed, a client reveals at most one of the two shares of a peer, and a list of survivors
    needs t signatures, so a server that lies within the protocol can end a round but not open it, as long as fewer than
    2t − n of n clients collude with it (a third of them, at two thirds): with more, two lists could be signed. *Does
    not hold*: what the sum itself reveals (a column that one row fills shows that row's part; see the minimums), what
    can be distinguished from sums of different cohorts, a server that chooses the shared V so that few rows speak, a
    client that sends nonsense, and the clock. That is the protocol of a simulation, in which clients may drop out;
    between organisations none may be missing, and all verify the question and the total
    (:mod:`fedfactor.privacy.secure_aggregation.verified`).

    References
    ----------
    .. [1] K. Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS 2017.
       doi:10.1145/3133956.3133982
    """

    min_clients: int = 3
    threshold: float = 2 / 3
    fractional_bits: int = 32
    allow_dropouts: bool = False
    gathered: Literal["refuse", "clear"] = "refuse"
    place: ClassVar[int] = 3
    hides: ClassVar[bool] = True
    mode: ClassVar[str] = "secure-sum"

    def check(self, algorithm: Algorithm, meta: Meta, spec: Spec) -> None:
        """Refuse thresholds that protect nothing."""
        if self.gathered not in ("refuse", "clear"):
            raise ValueError(f"gathered={self.gathered!r} is not known. Use 'refuse' or 'clear'.")
        if not 0.5 < self.threshold <= 1:
            raise ValueError(f"threshold={self.threshold} must lie in (0.5, 1].")
        if not 1 <= self.fractional_bits <= 52:
            raise ValueError(f"fractional_bits={self.fractional_bits} must lie between 1 and 52.")
        if meta.n_clients < max(2, self.min_clients):
            raise IncompatibleError(
                f"Secure aggregation of {meta.n_clients} clients: the minimum is {max(2, self.min_clients)}, "
                "because with two, each can subtract its own part and read the other's. Bring more clients in, or say "
                "SecureSum(min_clients=2)."
            )

    def needed(self, n_clients: int) -> int:
        """Count the clients whose absence leaves a sum."""
        wanted = math.ceil(self.threshold * n_clients - 1e-9)
        return min(n_clients, max(wanted, least_threshold(n_clients), self.min_clients))

    def combines_only(self) -> bool:
        """Return whether uploads that the server must see are refused."""
        return self.gathered == "refuse"

    def fixes_cohort(self) -> bool:
        """Return whether every client must stay."""
        return not self.allow_dropouts

    def sees(self, what: str) -> str:
        """Only sums are shown."""
        each = what.removeprefix("every client's ").replace("upload", "uploads")
        return f"the sum of all {each}, and no single one"

    def not_covered(self, channel: Channel) -> list[str]:
        """Describe what sums reveal by themselves."""
        found: list[str] = []
        if not channel.sender.noisy:
            found += [
                "rows: without noise, sums of many rounds can reveal them",
                "the counts per column, which the server sees as sums over clients",
                "rows or clients that come or go between two runs: the sums of the runs differ by their parts",
                "a server that lies: it can choose V so that few rows speak"
                if channel.simulation
                else "a server that lies with the help of a client: together they set totals, and so choose V",
            ]
        if any(getattr(kind, "uplink", "") == Uplink.GATHER for kind in channel.algorithm.messages(channel.meta)):
            found.append("uploads that the server sees one by one (in_clear): no sum hides them")
        return found

    def open(self, opening: Opening) -> MaskedSum:
        """Begin one round among these clients."""
        return MaskedSum(self, opening.names, opening.at, opening.size, opening.run, opening.seed)


class MaskedSum:
    """Secure aggregation with all clients in this process: each sees only what the protocol hands it."""

    def __init__(
        self,
        settings: SecureSum,
        names: Sequence[str],
        at: Round,
        size: tuple[int, int],
        run: bytes,
        seed: int | None,
    ) -> None:
        self._settings = settings
        self._names = tuple(names)
        self._side = size[1]
        self._grid: float | None = None
        about = (run, at.index, self._names, settings.needed(len(names)), size_of(*size))
        clients = _clients(self._names, settings.min_clients, seed, at.index)
        self._parts = {name: SumClient(client, about) for name, client in clients.items()}
        self._server = SumServer(*about)
        self._questions = self._server.open(self._ask)

    def _ask(self, questions: Mapping[str, Tree]) -> dict[str, Tree]:
        return {name: self._parts[name].answer(question) for name, question in questions.items()}

    @property
    def present(self) -> list[str]:
        """Those whose masked parts arrived."""
        return self._server.survivors

    @property
    def bytes_up(self) -> int:
        """All that clients sent for this sum."""
        return self._server.bytes_up

    def take(self, name: str, parcel: Parcel) -> None:
        """Let a client mask its integers, and the server add them."""
        self._grid, part = parcel.grid, self._parts[name]
        part.words = words_of(parcel, self._settings.fractional_bits, len(self._names))
        self._server.take(name, part.answer(self._questions[name]))
        part.words = None  # what was sent under masks need not be held

    def total(self) -> Parcel:
        """Unmask the sum with the help of those who are still there."""
        words = self._server.close(self._ask)
        grid = self._grid if self._grid is not None else math.ldexp(1.0, -self._settings.fractional_bits)
        return read_words(words, self._side, grid)


def _clients(names: Sequence[str], least: int, seed: int | None, index: int) -> dict[str, SecureClient]:
    """Stand in for the clients of a simulation; identity keys are known to all, as a registry would make them."""
    identities = {name: Identity() for name in names}
    registry = {name: identity.public for name, identity in identities.items()}
    found: dict[str, SecureClient] = {}
    for name in names:
        entropy = Entropy() if seed is None else Entropy.seeded(seed, name, index, "secagg")
        found[name] = SecureClient(name, identities[name], registry, least, entropy)
    return found


def sum_securely(vectors: Mapping[str, np.ndarray], settings: SecureSum, run: bytes, index: int = -1) -> np.ndarray:
    """Add integer vectors of all clients under masks, as for counts before a run.

    Examples
    --------
    >>> parts = {name: np.array([1, -2]) for name in "abc"}
    >>> sum_securely(parts, SecureSum(), b"example")
    array([ 3, -6])
    """
    names = sorted(vectors)
    size = next(iter(vectors.values())).size
    masked = MaskedSum(settings, names, Round(0, index), (size, 0), run, None)
    for name in names:
        masked.take(name, Parcel(np.asarray(vectors[name], np.int64), (), 1.0))
    return masked.total().values
