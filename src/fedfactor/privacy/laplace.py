"""Laplace noise at each client: a guarantee with δ = 0, for uploads of few numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedfactor.core.algorithm import Algorithm, Meta
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.flattened_upload import Parcel
from fedfactor.core.transforms import Site, Transform
from fedfactor.core.wire import Spec
from fedfactor.privacy.discrete_gaussian import discrete_laplace
from fedfactor.privacy.ledger import Entry
from fedfactor.privacy.noise import CHOICES, refuse_public_numbers

if TYPE_CHECKING:
    from fedfactor.privacy.pipeline import Channel

__all__ = ["Laplace"]


@dataclass(frozen=True, slots=True)
class Laplace(Transform):
    r"""Bound a whole upload by the sum of its absolute values, and add discrete Laplace noise: client-level only.

    Each client adds all of the noise itself, so that it need trust neither the server nor other clients.

    Parameters
    ----------
    norm : float
        Largest sum of absolute values of an upload, measured from the neutral upload.
    epsilon : float
        What one round costs, at δ = 0. A run costs at most as much as all of its rounds together.
    bits : int
        Grid steps in the scale of the noise, as a power of two.

    Notes
    -----
    Uploads are rounded towards zero onto a grid of width :math:`norm / (\varepsilon\, 2^{bits})`, which cannot raise
    their norm above :math:`\varepsilon\, 2^{bits}` steps; noise with :math:`P(y) \propto \exp(-|y| / 2^{bits})` then
    costs ε for a client that comes or goes. It is drawn exactly, from the operating system's entropy.

    The mean absolute error of each number is norm/ε, however many there are, while the norm of an upload grows with
    them; for long uploads Gaussian noise is smaller at the same ε.

    References
    ----------
    .. [1] C. Dwork, F. McSherry, K. Nissim, A. Smith, "Calibrating noise to sensitivity in private data analysis", TCC
       2006. doi:10.1007/11681878_14

    Examples
    --------
    >>> from fedfactor.core.algorithm import Round
    >>> site = Site("a", Round(0, 0), 3, None, noise_seed=1)
    >>> sent = Laplace(1.0, epsilon=1e6).encode(Parcel(np.array([3.0, -1.0]), ()), site)
    >>> sent.floats.round(3)
    array([ 0.75, -0.25])
    """

    norm: float
    epsilon: float
    bits: int = 22
    place: ClassVar[int] = 2
    noisy: ClassVar[bool] = True
    equal_weights: ClassVar[bool] = True

    def check(self, algorithm: Algorithm, meta: Meta, spec: Spec) -> None:
        """Refuse figures that mean nothing, and a grid that 64 bits cannot carry."""
        if not (0 < self.norm < math.inf and 0 < self.epsilon < math.inf):
            raise ValueError(f"{self} must have a positive, finite norm and epsilon.")
        if self.bits not in range(10, 26):
            raise ValueError(f"{self} must have bits from 10 to 25.")
        if not 0 < self._width < math.inf or math.ldexp(self.epsilon, self.bits) * meta.n_clients >= 2.0**52:
            raise IncompatibleError(f"{self} asks for a grid that is too fine. Use a smaller epsilon, or fewer bits.")

    def check_beside(self, links: Sequence[Transform], algorithm: Algorithm, meta: Meta) -> None:
        """Refuse a second bound, which would move the upload a second time."""
        other = next((link for link in links if link is not self and link.place == 1), None)
        if other is not None:
            raise IncompatibleError(f"Laplace bounds uploads itself. Leave {type(other).__name__} out.")

    def admit(self, parcel: Parcel, kind: str) -> None:
        """Refuse numbers that would be sent without noise."""
        refuse_public_numbers(parcel, kind)

    @property
    def _width(self) -> float:
        return self.norm / math.ldexp(self.epsilon, self.bits)

    def grid(self, size: int) -> float:
        """Return the width of a grid step."""
        return self._width

    def encode(self, parcel: Parcel, site: Site) -> Parcel:
        """Subtract the neutral upload, clip, round towards zero, and add noise; non-finite uploads count as neutral."""
        moved = parcel.values if site.neutral is None else parcel.values - site.neutral
        steps = self._steps(moved)
        return Parcel(steps + discrete_laplace(steps.size, self.bits, site.entropy("noise")), parcel.side, self._width)

    def _steps(self, values: np.ndarray) -> np.ndarray:
        """Count grid steps, of which all numbers together have at most ε · 2^bits: checked in whole numbers."""
        most = math.floor(math.ldexp(self.epsilon, self.bits))
        largest = float(np.abs(values).max(initial=0.0))
        if not np.isfinite(largest) or largest == 0:
            return np.zeros(values.size, np.int64)
        length = float(np.abs(values / largest).sum())  # scaled first: the sum cannot overflow
        share = values / largest * min(largest / self._width, most / length)
        steps = np.trunc(share).astype(np.int64)
        over = int(np.abs(steps).sum()) - most
        if over > 0:  # the last bits of the division
            worst = int(np.abs(steps).argmax())
            steps[worst] -= int(np.sign(steps[worst])) * min(over, abs(int(steps[worst])))
        return steps if int(np.abs(steps).sum()) <= most else np.zeros_like(steps)

    def decode(self, parcel: Parcel, present: Sequence[str], neutral: np.ndarray | None) -> Parcel:
        """Turn grid steps into numbers, and add the neutral upload once per client."""
        return Parcel(parcel.floats if neutral is None else parcel.floats + len(present) * neutral, parcel.side)

    # ------------------------------------------------------------------------------------ description
    def event(self, links: Sequence[Transform], algorithm: Algorithm, meta: Meta) -> Entry:
        """Cost ε for each round."""
        return Entry("", 0, 0.0, "client", epsilon=self.epsilon)

    def sees(self, what: str) -> str:
        """Noise lies on every upload."""
        return what.replace("upload", "noisy upload")

    def not_covered(self, channel: Channel) -> list[str]:
        """Return what noise on uploads leaves out."""
        return [CHOICES]

    def facts(self) -> dict[str, Any]:
        """Return which clients draw the noise."""
        return {"noise_is": "local"}
