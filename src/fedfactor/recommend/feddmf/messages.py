"""What travels in FedDMF, and what its parties keep. Item vectors, and who holds how many of them; nothing else."""

from __future__ import annotations

from typing import ClassVar

from fedfactor.core.algorithm import LocalFactors, Uplink
from fedfactor.core.pytree import Array, public, record, telemetry


@record("feddmf.Hello")
class Hello:
    """Down: request the list of items that a client holds and shares."""

    n_components: Array


@record("feddmf.Holdings")
class Holdings:
    """Up: a one for each item of the catalogue that it holds and shares."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    count: Array


@record("feddmf.Anchor")
class Anchor:
    """Down: the items that two clients or more share, and the sum and number of their vectors in a past round.

    ``keep``: whether the last epoch was the best so far. ``net`` is the average of those layers that are shared, if
    any are.
    """

    items: Array
    total: Array
    count: Array
    seen_in: Array
    keep: Array
    net: dict[str, Array] | None = None


@record("feddmf.Vectors")
class Vectors:
    """Up: vectors of the items in the anchor (zeros for those not held), and a one for each that is held.

    Where layers are shared they come along, times its own weight.
    """

    uplink: ClassVar[Uplink] = Uplink.SUM

    Q: Array
    count: Array
    net: dict[str, Array] | None = None
    weight: Array | None = public(default=None)
    sse: Array | None = telemetry(default=None)
    n: Array | None = telemetry(default=None)


@record("feddmf.Publish")
class Publish:
    """Down: training is over, send the vectors of all that you share; ``keep`` as in the anchor."""

    keep: Array


@record("feddmf.Published")
class Published:
    """Up: vectors of all items that it shares (zeros elsewhere), and a one for each."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    Q: Array
    count: Array


@record("feddmf.Catalogue")
class Catalogue:
    """Down: sum and number of the published vectors of each item."""

    total: Array
    count: Array


@record("feddmf.Done")
class Done:
    """Up: that it has finished at home."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    n: Array = public()


@record("feddmf.Local")
class Local:
    """Stays home: all weights and the optimiser's moments, what was best, and the cells kept for validation.

    ``sent_in`` is the round of the last upload of vectors, −1 before it; ``published`` states whether the last vectors
    were published. ``mean`` is the running mean of the weights, where one is kept.
    """

    weights: dict[str, Array]
    first: dict[str, Array]
    second: dict[str, Array]
    steps: Array
    sent_in: Array
    published: Array
    cells: Array
    labels: Array
    best: dict[str, Array] | None = None
    mean: dict[str, Array] | None = None


@record("feddmf.Server")
class Server:
    """What the server knows: counts of holdings, the last sums, how often it has asked, and how validation went."""

    items: Array
    total: Array
    count: Array
    epoch: Array
    best: Array
    waited: Array
    loss: Array
    published: Array | None = None
    holders: Array | None = None
    over: Array | None = None


@record("feddmf.DeepFactors")
class DeepFactors(LocalFactors):
    """User vectors U, item vectors V (d × m), which of the items have one, and the network that joins them."""

    network: dict[str, Array] | None = None
    known: Array | None = None
