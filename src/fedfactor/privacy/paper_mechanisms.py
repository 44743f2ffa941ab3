"""Mechanisms as the papers print them. None of their guarantees is proven, and each description states it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from fedfactor.core.algorithm import Algorithm, Meta
from fedfactor.core.flattened_upload import Parcel
from fedfactor.core.transforms import Site, Transform
from fedfactor.core.wire import Spec
from fedfactor.privacy.accounting import analytic_epsilon
from fedfactor.privacy.ledger import Entry

__all__ = ["PaperNoise"]


@dataclass(frozen=True, slots=True)
class PaperNoise(Transform):
    """Noise on each client's upload, calibrated as in the federated factorization papers: **no proven guarantee**.

    Parameters
    ----------
    mechanism : {"gaussian", "laplace", "xor"}
        Gaussian with σ = Δ√(2 ln(1.25/δ))/ε, Laplace with scale Δ/ε, or bits flipped with chance 1/(1 + exp(ε/Δ)).
    epsilon, delta : float
        Nominal values *per release*.
    sensitivity : float
        The Δ that is assumed; no paper proves one.
    clip : tuple of float, optional
        Range to which noisy entries are cut at the client.
    theta : float, optional
        Largest norm of the upload before the noise, as FELB's paper clips at θ.

    Notes
    -----
    The neighbouring relation is not stated, the sensitivity not proven, and nothing is composed over rounds.
    :meth:`true_epsilon` states what holds if entries lie in [0, 1] and a whole client may change.
    """

    mechanism: Literal["gaussian", "laplace", "xor"] = "gaussian"
    epsilon: float = 1.0
    delta: float = 0.05
    sensitivity: float = 1.0
    clip: tuple[float, float] | None = None
    theta: float | None = None
    place: ClassVar[int] = 2
    noisy: ClassVar[bool] = True
    equal_weights: ClassVar[bool] = True
    label: ClassVar[str] = "paper calibration: no proven guarantee"

    def check(self, algorithm: Algorithm, meta: Meta, spec: Spec) -> None:
        """Refuse words and figures that mean nothing."""
        if self.mechanism not in ("gaussian", "laplace", "xor"):
            raise ValueError(f"mechanism={self.mechanism!r} is not known. Use 'gaussian', 'laplace' or 'xor'.")
        if not (self.epsilon > 0 and self.sensitivity > 0 and 0 < self.delta < 1):
            raise ValueError("epsilon and sensitivity must be positive, delta must lie in (0, 1).")

    def event(self, links: Sequence[Transform], algorithm: Algorithm, meta: Meta) -> Entry:
        """Cost without a bound: nothing is proven."""
        return Entry("", 0, 0.0, "client", what=self.label, proven=False)

    def sees(self, what: str) -> str:
        """Noise lies on every upload."""
        return what.replace("upload", "noisy upload")

    @property
    def scale(self) -> float:
        """Standard deviation (Gaussian), scale (Laplace) or chance of a flip (XOR)."""
        if self.mechanism == "gaussian":
            return self.sensitivity * math.sqrt(2 * math.log(1.25 / self.delta)) / self.epsilon
        if self.mechanism == "laplace":
            return self.sensitivity / self.epsilon
        return 1 / (1 + math.exp(min(700.0, self.epsilon / self.sensitivity)))

    def encode(self, parcel: Parcel, site: Site) -> Parcel:
        """Add the noise."""
        values = self.spoil(parcel.values, site.entropy("paper").uniforms(parcel.values.size))
        return replace(parcel, values=values)

    def spoil(self, values: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Apply the mechanism to numbers, given uniform draws of the same size."""
        from scipy.special import ndtri

        uniforms = uniforms.reshape(values.shape)
        if self.mechanism == "xor":
            return np.where(uniforms < self.scale, 1 - values, values)
        if self.theta is not None:
            values = values * min(1.0, self.theta / max(float(np.linalg.norm(values)), 1e-300))
        if self.mechanism == "gaussian":
            noisy = values + self.scale * ndtri(uniforms)
        else:
            centred = uniforms - 0.5
            noisy = values - self.scale * np.sign(centred) * np.log1p(-2 * np.abs(centred))
        return noisy if self.clip is None else np.clip(noisy, *self.clip)

    def true_epsilon(self, size: int, rounds: int, delta: float | None = None) -> float:
        """Return the ε that holds for `rounds` releases of `size` entries in [0, 1], any of which may change.

        Examples
        --------
        >>> round(PaperNoise("gaussian", 1.0, 1e-5, sensitivity=50).true_epsilon(5000, 100), 1)
        16.1
        >>> PaperNoise("laplace", 1.0, sensitivity=500).true_epsilon(5000, 100)
        1000.0
        """
        if self.mechanism == "gaussian":
            return analytic_epsilon(math.sqrt(rounds * size) / self.scale, delta or self.delta)
        if self.mechanism == "laplace":
            return rounds * size / self.scale
        return rounds * size * math.log((1 - self.scale) / self.scale)
