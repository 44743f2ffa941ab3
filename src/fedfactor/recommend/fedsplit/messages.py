"""What travels in FedSPLIT, and what its parties keep between exchanges."""

from __future__ import annotations

from typing import ClassVar

from fedfactor.core.algorithm import Uplink
from fedfactor.core.pytree import Array, record


@record("fedsplit.Begin")
class Begin:
    """Down: request the sums of ratings."""

    n_components: Array


@record("fedsplit.Level")
class Level:
    """Down: the mean rating; pooled item biases, and a first joint V, where the configuration has them."""

    mu: Array
    item: Array | None = None
    V: Array | None = None


@record("fedsplit.Global")
class Global:
    """Down, to each client its own: joint item factors and biases, and M, which turns its own factors into them.

    M has no columns for a client whose factors did not take part.
    """

    mu: Array
    item: Array
    V: Array
    M: Array


@record("fedsplit.Basis")
class Basis:
    """Down, when the joint step runs on sums: item biases, and the joint item factors so far."""

    mu: Array
    item: Array
    V: Array


@record("fedsplit.Stats")
class Stats:
    """Up: ratings summed and counted (or a mean and a one); with them, for each item, residuals and counts."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    total: Array
    weight: Array
    residuals: Array | None = None
    counts: Array | None = None


@record("fedsplit.Means")
class Means:
    """Up, as printed: the client's mean rating."""

    uplink: ClassVar[Uplink] = Uplink.GATHER

    mean: Array


@record("fedsplit.BiasSums")
class BiasSums:
    """Up: own item biases times weight, and the weights."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    item: Array
    weight: Array


@record("fedsplit.Factors")
class Factors:
    """Up: own item factors; as printed also item biases; when masks are allowed, which items were rated."""

    uplink: ClassVar[Uplink] = Uplink.GATHER

    V: Array
    item: Array | None = None
    seen: Array | None = None


@record("fedsplit.JointSums")
class JointSums:
    """Up: all that the best joint V depends on, in place of the item factors themselves."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    G: Array
    N: Array
    D: Array | None = None


@record("fedsplit.Local")
class Local:
    """Stays home: the client's own model (its start, until it was fitted), what it sends of it, and its share of M."""

    U: Array
    V: Array
    user: Array
    item: Array
    mu: Array
    sent: Array
    sent_item: Array
    M: Array
    fitted: Array
    chosen: Array


@record("fedsplit.Server")
class Server:
    """The server's memory; ``names`` are the clients, joined and as bytes."""

    mu: Array
    item: Array
    V: Array
    steps: Array
    moved: Array
    done: Array
    rejected: Array
    names: Array
