"""Whose noise counts: secure aggregation in which distributed noise hides, and the honest shares in it."""

from __future__ import annotations

from dataclasses import replace

from fedfactor.core.algorithm import Algorithm, Meta
from fedfactor.core.errors import IncompatibleError
from fedfactor.privacy.dp import DP
from fedfactor.privacy.minimums import Minimums
from fedfactor.privacy.secure_aggregation.transform import SecureSum

__all__ = ["secure_for_noise"]

NOISY_THRESHOLD = 0.9
"""Share of clients that a noisy sum waits for: those beyond it may drop out, and the others add noise for them."""


def secure_for_noise(
    asked: DP, secure: SecureSum | None, minimums: Minimums, algorithm: Algorithm, meta: Meta
) -> tuple[SecureSum | None, int]:
    """Return secure aggregation (None: each client adds the whole noise itself), and how many shares of noise count."""
    if asked.noise == "local" and secure is not None:
        raise IncompatibleError("noise='local' excludes secure aggregation. Use noise='distributed', or leave it out.")
    if asked.noise == "distributed" and secure is None:
        secure = SecureSum(threshold=NOISY_THRESHOLD)
    if secure is None:
        return None, 1
    if meta.n_clients < 3:
        raise IncompatibleError(
            f"Distributed noise hides in secure aggregation, which {meta.n_clients} client(s) cannot make. Use "
            "dp(..., noise='local'): each then adds the whole noise itself."
        )
    secure.check(algorithm, meta, {})
    needed = secure.needed(meta.n_clients)
    # A coordinator who is a client knows its own noise, and can take it off.
    known = asked.colluding + minimums.coordinator_is_client
    honest = needed - known
    independent = meta.n_clients - known
    if honest < 1 or independent < 2:
        raise IncompatibleError(
            f"With {known} colluding clients of {meta.n_clients}, no client is left whose noise counts. Use "
            f"noise='local'."
        )
    # Each client holds the server to it: in a smaller sum there would be less noise than was paid for.
    return replace(secure, min_clients=needed), honest
