"""Sharing a secret among many so that any few can restore it and fewer learn nothing (Shamir 1979)."""

from __future__ import annotations

from collections.abc import Mapping

from fedfactor.core.entropy import Entropy

__all__ = ["SHARE_BYTES", "join", "split"]

_PRIME = (1 << 521) - 1  # a Mersenne prime, well above any 32-byte secret
SHARE_BYTES = 66
"""Length of one share."""


def split(secret: bytes, n_shares: int, threshold: int, entropy: Entropy) -> list[bytes]:
    """Cut a secret of 32 bytes into shares, of which `threshold` restore it.

    Parameters
    ----------
    secret : bytes
        Exactly 32 bytes.
    n_shares : int
        Number of shares; share i belongs to point i + 1.
    threshold : int
        How many shares are needed.
    entropy : Entropy
        Source of the polynomial.

    Examples
    --------
    >>> shares = split(b"s" * 32, 5, 3, Entropy())
    >>> join({1: shares[0], 4: shares[3], 5: shares[4]})
    b'ssssssssssssssssssssssssssssssss'
    """
    if len(secret) != 32 or not 1 <= threshold <= n_shares:
        raise ValueError(f"Cannot cut {len(secret)} bytes into {n_shares} shares with threshold {threshold}.")
    # 72 random bytes modulo a 521-bit prime: 55 bits above it, so no residue is favoured by more than 2⁻⁵⁵.
    terms = [int.from_bytes(entropy.take(72), "little") % _PRIME for _ in range(threshold - 1)]
    terms.insert(0, int.from_bytes(secret, "little"))
    return [_evaluate(terms, point).to_bytes(SHARE_BYTES, "little") for point in range(1, n_shares + 1)]


def _evaluate(terms: list[int], point: int) -> int:
    value = 0
    for term in reversed(terms):
        value = (value * point + term) % _PRIME
    return value


def join(shares: Mapping[int, bytes]) -> bytes:
    """Restore a secret from shares by point; too few, or false ones, give something else or raise ``ValueError``."""
    secret = 0
    for point, share in shares.items():
        numerator = denominator = 1
        for other in shares:
            if other != point:
                numerator = numerator * -other % _PRIME
                denominator = denominator * (point - other) % _PRIME
        secret += int.from_bytes(share, "little") * numerator * pow(denominator, -1, _PRIME)
    secret %= _PRIME
    if secret >= 1 << 256:
        raise ValueError("These shares do not restore a secret of 32 bytes: there are too few, or some are false.")
    return secret.to_bytes(32, "little")
