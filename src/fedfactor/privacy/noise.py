"""Bounds and noise whose guarantee is proven."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fedfactor.core.algorithm import Algorithm, Meta, Uplink
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.flattened_upload import Parcel
from fedfactor.core.transforms import Site, Transform
from fedfactor.core.wire import Spec
from fedfactor.privacy.discrete_gaussian import discrete_gaussian
from fedfactor.privacy.ledger import Entry

if TYPE_CHECKING:
    from fedfactor.privacy.pipeline import Channel

__all__ = ["CHOICES", "Clip", "Gaussian", "refuse_public_numbers"]

CHOICES = "choices made by looking at the data: rank, bounds, number of rounds, unless the ledger paid for them"
"""What no noise on uploads covers."""


def refuse_public_numbers(parcel: Parcel, kind: str) -> None:
    """Refuse an upload with numbers that noise leaves as they are, unless they only show that a client takes part.

    Examples
    --------
    >>> refuse_public_numbers(Parcel(np.zeros(3), (1.0,)), "Sums")
    """
    if any(number != 1.0 for number in parcel.side):
        raise IncompatibleError(
            f"{kind} holds a public number other than 1, which no noise hides: it reveals a client with few rows "
            "from one with many. Let clients count alike (weights='equal'), and leave out those without rows."
        )


@dataclass(frozen=True, slots=True)
class Clip(Transform):
    """Bound a whole upload, measured from the neutral one, to a Euclidean norm: client-level only.

    Examples
    --------
    >>> from fedfactor.core.algorithm import Round
    >>> site = Site("a", Round(0, 0), 3, None)
    >>> Clip(1.0).encode(Parcel(np.array([3.0, 4.0]), ()), site).values
    array([0.6, 0.8])
    """

    norm: float
    place: ClassVar[int] = 1

    def check(self, algorithm: Algorithm, meta: Meta, spec: Spec) -> None:
        """Refuse a norm that bounds nothing."""
        if not 0 < self.norm < math.inf:
            raise ValueError(f"Clip({self.norm}) must have a positive, finite norm.")

    def bound(self) -> float:
        """Return the norm."""
        return self.norm

    def encode(self, parcel: Parcel, site: Site) -> Parcel:
        """Subtract the neutral upload and clip; a non-finite upload counts as neutral."""
        moved = parcel.values if site.neutral is None else parcel.values - site.neutral
        return replace(parcel, values=clip_to(moved, self.norm * (1 - 2.0**-40)))  # the last bits are room for rounding

    def decode(self, parcel: Parcel, present: Sequence[str], neutral: np.ndarray | None) -> Parcel:
        """Add the neutral upload once per client."""
        if neutral is None:
            return parcel
        return Parcel(parcel.floats + len(present) * neutral, parcel.side)


def clip_to(values: np.ndarray, norm: float) -> np.ndarray:
    """Scale a vector down to a norm, never above it by rounding; NaN and infinity give zeros.

    Examples
    --------
    >>> clip_to(np.array([np.nan, 1.0]), 1.0)
    array([0., 0.])
    """
    if not np.isfinite(values).all():
        return np.zeros_like(values)
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0:
        return values
    length = float(np.linalg.norm(values / largest))  # scaled first: squares neither overflow nor vanish
    if largest * length <= norm:
        return values
    clipped = values / largest * (norm / length)
    slack = 1.0
    while math.fsum(clipped * clipped) > norm * norm:  # the last bits of the scaling
        slack -= 2.0**-50
        clipped = clipped * slack
    return clipped


@dataclass(frozen=True, slots=True)
class Gaussian(Transform):
    r"""Discrete Gaussian noise on an integer grid.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise in the *sum*, in units of the sensitivity.
    sensitivity : float
        Largest Euclidean change of the sum of uploads that one unit can make, before rounding to the grid.
    whole : bool
        True when the unit is a whole upload: rounding towards zero then cannot lengthen it. False when the unit is a
        part of one (a row, a subject): rounding may move every entry by one more step, which is added.
    touched : int
        For parts of uploads: uploads that one unit can have a part in. Each of them is rounded.
    share : {"distributed", "local"}
        Under secure aggregation each client adds a part, and `honest` clients' parts make up the whole. Without one,
        each client adds the whole.
    honest : int
        Fewest clients in a sum whose noise counts: those needed for a sum, less those who may collude.
    sampling : float
        Chance with which each client takes part in a round, by a private random draw.
    bits : int
        Grid steps per standard deviation of one client's noise, as a power of two.

    Notes
    -----
    On the grid, the discrete Gaussian of standard deviation σ obeys the same Rényi bounds as the continuous one, in any
    dimension; a sum of several differs by a term of order :math:`\exp(-2\pi^2\sigma^2)`, which is 0 in double
    precision at σ ≥ 4 grid steps.
    """

    noise_multiplier: float
    sensitivity: float
    whole: bool
    share: Literal["distributed", "local"] = "distributed"
    honest: int = 1
    sampling: float = 1.0
    touched: int = 1
    bits: int = 22
    place: ClassVar[int] = 2
    noisy: ClassVar[bool] = True
    equal_weights: ClassVar[bool] = True

    def check(self, algorithm: Algorithm, meta: Meta, spec: Spec) -> None:
        """Refuse noise that the grid cannot carry."""
        if not 0 < self.noise_multiplier < math.inf or not 0 < self.sensitivity < math.inf:
            raise ValueError("noise_multiplier and sensitivity must be positive and finite.")
        self.grid(sum(math.prod(leaf.shape) for leaf in spec.values()))

    def check_beside(self, links: Sequence[Transform], algorithm: Algorithm, meta: Meta) -> None:
        """Refuse shares of noise where the server sees more than their sum."""
        if self.share != "distributed":
            return
        if not any(link.hides for link in links):
            raise IncompatibleError(
                "Distributed noise protects only a sum that cannot be taken apart: add SecureSum, or share='local'."
            )
        seen = [kind.__name__ for kind in algorithm.messages(meta) if getattr(kind, "uplink", "") == Uplink.GATHER]
        if seen:
            raise IncompatibleError(
                f"Of distributed noise each upload holds a share only, but the server sees each {seen[0]} of "
                f"{type(algorithm).__name__}. Use noise='local', or a method whose uploads are summed."
            )

    def event(self, links: Sequence[Transform], algorithm: Algorithm, meta: Meta) -> Entry:
        """Noise counts if what it hides is bounded, and if all of it comes."""
        stated = algorithm.sensitivity(meta)
        bounds = [link.bound() for link in links] if self.whole else [stated[1]] if stated else []
        # Of a sum that fewer may be in than share the noise, a part of the noise may be missing.
        sums = [link.needed(meta.n_clients) for link in links if link.hides]
        there = self.share == "local" or any(self.honest <= needed for needed in sums)
        proven = there and any(bound is not None and bound <= self.sensitivity for bound in bounds)
        unit = "client" if self.whole else "row"
        return Entry("", 0, self.noise_multiplier, unit, self.sampling, proven=proven)

    def sees(self, what: str) -> str:
        """Noise lies on every upload."""
        return what.replace("upload", "noisy upload")

    def not_covered(self, channel: Channel) -> list[str]:
        """Describe what the unit leaves out, and whose noise is trusted."""
        unit = channel.books.entry.unit
        asked = channel.asked
        found = list[str]()
        if unit == "row":
            found += ["a person with several rows, unless each has one", "properties of a whole client"]
        if unit == "subject":
            found.append(f"a subject with rows at more than {asked.known_to if asked else 1} clients")
        if self.share == "distributed":
            found.append(f"more than {asked.colluding if asked else 0} clients who reveal their noise to the server")
            if asked is not None and not asked.colluding:
                found.append("a client that takes its own share of the noise off what it sees (colluding=1 covers it)")
        return [*found, CHOICES]

    def facts(self) -> dict[str, Any]:
        """Return which clients draw the noise."""
        return {"noise_is": self.share}

    def admit(self, parcel: Parcel, kind: str) -> None:
        """Refuse numbers that would be summed without noise, unless they only show that a client takes part."""
        refuse_public_numbers(parcel, kind)

    def grid(self, size: int) -> float:
        """Return the width of a grid step for uploads of so many numbers."""
        parts = math.sqrt(self.honest) if self.share == "distributed" else 1.0
        extra = 0.0 if self.whole else self.noise_multiplier * math.sqrt(size) * self.touched
        room = math.ldexp(parts, self.bits) - extra
        if room < math.ldexp(parts, self.bits) / 2:
            raise IncompatibleError(
                f"A grid of 2^{self.bits} steps per standard deviation is too coarse for {size} numbers at noise "
                f"multiplier {self.noise_multiplier:.3g}. Use more bits (at most 25), fewer components or fewer rounds."
            )
        return self.noise_multiplier * self.sensitivity / room

    def encode(self, parcel: Parcel, site: Site) -> Parcel:
        """Round towards zero to the grid, and add this client's noise."""
        grid = self.grid(parcel.values.size)
        values = parcel.values
        if self.sampling < 1 and float(site.entropy("sampling").uniforms(1)[0]) >= self.sampling:
            values = np.zeros_like(values)  # the client is absent, which stays hidden
        whole = np.trunc(values / grid)
        if not float(np.abs(whole).max(initial=0.0)) * site.n_clients < 2.0**61:
            raise IncompatibleError("An upload is too large for the integer grid. Is the clip missing?")
        noise = discrete_gaussian(values.size, self.bits, site.entropy("noise"))
        return Parcel(whole.astype(np.int64) + noise, parcel.side, grid)

    def decode(self, parcel: Parcel, present: Sequence[str], neutral: np.ndarray | None) -> Parcel:
        """Turn grid steps into numbers; a sampled sum is scaled to stand for all."""
        return Parcel(parcel.floats / self.sampling, parcel.side)
