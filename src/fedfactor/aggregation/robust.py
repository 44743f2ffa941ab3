"""Combining uploads so that a few hostile ones do not decide: a choice against secure aggregation, and said so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedfactor.aggregation.robust_rules import rule_named
from fedfactor.core.algorithm import Algorithm, Meta, Round
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.flattened_upload import Layout, Parcel
from fedfactor.core.pytree import Tree, leaves, to_numpy
from fedfactor.core.transforms import Opening, Transform
from fedfactor.core.wire import Spec

__all__ = ["Robust"]


@dataclass(frozen=True, slots=True)
class Robust(Transform):
    """Replace the sum of N uploads by N times a robust centre of them.

    Parameters
    ----------
    rule : str
        A name of :func:`~fedfactor.aggregation.robust_rules.robust_rules`. Per entry, ``"median"``: the median;
        ``"trimmed-mean"``: the mean without the largest and smallest `trim` share; ``"group-median"``: the median of
        the means of `groups` random groups.
    trim : float
        Share cut at either end by the trimmed mean.
    groups : int, optional
        Number of groups; by default as many, and an odd number, as leave at least two clients in each.
    hostile : int, optional
        Clients that shall not decide. Refused where the rule does not withstand so many (:meth:`withstands`).
    align : bool
        Before combining, match the rows of a factor to the factor that was sent down, by cosine.

    Notes
    -----
    The server sees every upload (each group's sum, for ``"group-median"``). Uploads that are not finite or not of the
    announced shape are left out. Clients count alike, whatever their rows. One hostile client spoils its whole group:
    groups withstand under a quarter of the clients, where the median of single uploads withstands under a half
    (:meth:`withstands`). Meant for methods that average factors (FedAvgNMF, FELB): the sums of PooledNMF differ from
    client to client for good reasons, and a median of them is biased.
    """

    rule: str = "median"
    trim: float = 0.25
    groups: int | None = None
    align: bool = True
    hostile: int | None = None
    place: ClassVar[int] = 3
    mode: ClassVar[str] = "robust"
    equal_weights: ClassVar[bool] = True
    forgiving: ClassVar[bool] = True

    def check(self, algorithm: Algorithm, meta: Meta, spec: Spec) -> None:
        """Refuse rules that cannot work here."""
        rule = rule_named(self.rule)
        if not 0 <= self.trim < 0.5:
            raise ValueError(f"trim={self.trim} must lie in [0, 0.5).")
        least = rule.least_clients(self)
        if meta.n_clients < least:
            raise IncompatibleError(f"{self.rule} needs at least {least} clients, there are {meta.n_clients}.")
        self.check_hostile(meta.n_clients)

    def check_hostile(self, n_clients: int) -> None:
        """Refuse more hostile clients than the rule withstands among so many."""
        most = self.withstands(n_clients)
        if self.hostile is not None and not 0 <= self.hostile <= most:
            raise IncompatibleError(
                f"{self.rule} withstands {most} hostile clients of {n_clients}, not {self.hostile}. Use rule='median', "
                "more groups, or more clients."
            )

    def withstands(self, n_clients: int) -> int:
        """Return how many hostile clients cannot move a number beyond the range of honest ones.

        Examples
        --------
        >>> [Robust(rule).withstands(20) for rule in ("median", "trimmed-mean", "group-median")]
        [9, 5, 4]
        >>> Robust("group-median", groups=7).withstands(20)
        3
        """
        return rule_named(self.rule).withstands(self, n_clients)

    def open(self, opening: Opening) -> RobustSum:
        """Begin one round."""
        return RobustSum(self, opening.at, opening.down, opening.layout)


class RobustSum:
    """Keeps all uploads of a round, then combines them."""

    def __init__(self, settings: Robust, at: Round, down: Tree, layout: Layout) -> None:
        self._settings = settings
        self._at = at
        self._anchors = _anchors(down, layout) if settings.align else []
        self.present: list[str] = []
        self.bytes_up = 0
        self._parcels: list[Parcel] = []

    def take(self, name: str, parcel: Parcel) -> None:
        """Keep one upload, its factor's rows in the order of the factor sent down."""
        self.present.append(name)
        self.bytes_up += parcel.nbytes
        values = parcel.floats
        for start, stop, reference in self._anchors:
            values = values.copy()
            values[start:stop] = _matched(values[start:stop].reshape(reference.shape), reference).ravel()
        self._parcels.append(Parcel(values, parcel.side))

    def total(self) -> Parcel:
        """Return N times the centre."""
        n = len(self._parcels)
        self._settings.check_hostile(n)  # some may have stayed away
        stacked = np.stack([np.concatenate([p.values, p.side]) for p in self._parcels])
        centre = n * rule_named(self._settings.rule).centre(stacked, self._settings, self._at)
        split = self._parcels[0].values.size
        return Parcel(centre[:split], tuple(centre[split:].tolist()))


def _anchors(down: Tree, layout: Layout) -> list[tuple[int, int, np.ndarray]]:
    """Find leaves of the upload that a factor of the same name and shape was sent down for."""
    sent = {path: to_numpy(leaf) for path, leaf in leaves(down)} if not hasattr(down, "items") else {}
    found: list[tuple[int, int, np.ndarray]] = []
    position = 0
    shapes: dict[str, Any] = {path: np.shape(leaf) for path, leaf in leaves(layout.like)}
    for path in layout.private:
        size = int(np.prod(shapes[path], dtype=np.int64))
        if path in sent and sent[path].shape == shapes[path] and len(shapes[path]) == 2:
            found.append((position, position + size, np.asarray(sent[path], np.float64)))
        position += size
    return found


def _matched(V: np.ndarray, reference: np.ndarray) -> np.ndarray:
    from scipy.optimize import linear_sum_assignment

    def unit(A: np.ndarray) -> np.ndarray:
        return A / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), 1e-300)

    return V[linear_sum_assignment(-(unit(reference) @ unit(V).T))[1]]
