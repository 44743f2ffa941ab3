"""What PooledNMF sends and what it keeps."""

from __future__ import annotations

from typing import ClassVar

from fedfactor.algorithms.pooled_nmf.start import WideSums
from fedfactor.core.protocol import Uplink
from fedfactor.core.tree import Array, record, telemetry


@record
class Factor:
    """Down: the shared factor; rows of norm 1 unless penalties set their length, of sum 1 for counts."""

    V: Array


@record
class Sums:
    """Up: all that the best V depends on, ``UᵀU`` and ``UᵀX``, and ``‖X‖²`` so that the server can tell the loss.

    ``rest``: ``‖X − PQ‖²``, when owners have components of their own; ``UᵀX`` is then that of the rest. ``extra``:
    what U pays. ``lengths``: sums and squared norms of the columns of U, when penalties share out lengths.
    """

    uplink: ClassVar[Uplink] = "sum"

    G: Array
    A: Array
    lengths: Array | None = None
    total: Array | None = telemetry(default=None)
    rest: Array | None = telemetry(default=None)
    extra: Array | None = telemetry(default=None)


@record
class MaskedSums:
    """Up, when cells are missing: ``UᵀU``, ``Uᵀ(M ∗ X)``, ``Uᵀ(M ∗ UV)``, squared error and norm of observed cells."""

    uplink: ClassVar[Uplink] = "sum"

    G: Array
    N: Array
    D: Array
    lengths: Array | None = None
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)
    extra: Array | None = telemetry(default=None)


@record
class CountSums:
    """Up, for counts: ``Uᵀ(X / UV)``, the sums of U over observed cells, the divergence and that of flat rows."""

    uplink: ClassVar[Uplink] = "sum"

    N: Array
    D: Array
    lengths: Array | None = None
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)
    extra: Array | None = telemetry(default=None)


@record
class RowGradients:
    """Up, when each row's part is bounded: the sum over rows of the clipped gradients of V."""

    uplink: ClassVar[Uplink] = "sum"

    D: Array


Upload = Sums | MaskedSums | CountSums | RowGradients


@record
class Local:
    """Stays home: U, the owner's own components, ``‖X‖²`` over observed cells, and what a row counts."""

    U: Array
    total: Array
    masked: Array
    weight: Array
    Q: Array | None = None


@record
class Server:
    """The server's memory: the last V, its momentum, the last sums, and what the loss was."""

    V: Array
    sent: Array
    up: Sums | MaskedSums | CountSums | WideSums | None
    cohort: Array
    n_clients: Array
    n_rows: Array
    stream: Array
    beta: Array
    beta_most: Array
    loss: Array
    sse: Array
    total: Array
    flat: Array
