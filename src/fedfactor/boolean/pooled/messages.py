"""What travels in a run of PooledBMF. Every upload is a sum over rows, and in the search a sum of whole numbers."""

from __future__ import annotations

from typing import ClassVar

from fedfactor.core.algorithm import Uplink
from fedfactor.core.pytree import Array, record, telemetry


@record("pooled_bmf.Factor")
class Factor:
    """Down: the shared factor, in [0, 1]."""

    V: Array


@record("pooled_bmf.Sums")
class Sums:
    """Up, proximal: all that the step on V depends on, ``UᵀU`` and ``UᵀX``, and ``‖X‖²`` to compute the loss."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    G: Array
    A: Array
    total: Array | None = telemetry(default=None)


@record("pooled_bmf.RowGradients")
class RowGradients:
    """Up, proximal, when each row's part is bounded: the sum over rows of the clipped gradients of V."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    D: Array


@record("pooled_bmf.AskTotals")
class AskTotals:
    """Down: the search begins."""

    n_components: Array


@record("pooled_bmf.Totals")
class Totals:
    """Up: ones and observed cells of each column, and rows."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    ones: Array
    seen: Array
    rows: Array


SIGNS = 64
"""Sums of random signs from which the server estimates how often rows repeat, to 18 % (one standard error).

Few on purpose: each reveals as much about the rows as the count of one more column would.
"""


@record("pooled_bmf.AskRepeats")
class AskRepeats:
    """Down: there are more rows than `sample`; how often do equal rows occur?"""

    n_components: Array


@record("pooled_bmf.Repeats")
class Repeats:
    """Up: sums over rows of random signs, equal for equal rows, and the number of rows that have a one."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    signs: Array
    rows: Array


@record("pooled_bmf.AskTogether")
class AskTogether:
    """Down: sets of columns, and the share of rows that the search looks at."""

    columns: Array
    share: Array


@record("pooled_bmf.Together")
class Together:
    """Up: for each set, the rows that have all its columns, and how many of those have each column."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    together: Array
    count: Array


@record("pooled_bmf.AskGains")
class AskGains:
    """Down: candidates for each threshold, packed, and the choices of each start so far."""

    candidates: Array
    picks: Array
    share: Array


@record("pooled_bmf.Gains")
class Gains:
    """Up: for each start and each of its candidates, the gains of the rows that would take it."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    gains: Array


@record("pooled_bmf.AskVotes")
class AskVotes:
    """Down: several V side by side, packed, with the cost of a covered zero, tags, whose U to start from or to keep."""

    V: Array
    penalty: Array
    tag: Array
    parent: Array
    keep: Array
    thorough: Array
    share: Array


@record("pooled_bmf.Votes")
class Votes:
    """Up: for each V what each cell would gain, rows that have two components, wrong cells, and ones.

    ``wrong`` is counted twice: with U chosen for this V alone, as at the end, and with the better of that and of what
    came of the U before.
    """

    uplink: ClassVar[Uplink] = Uplink.SUM

    votes: Array
    both: Array
    wrong: Array
    ones: Array


@record("pooled_bmf.AskSwaps")
class AskSwaps:
    """Down: one V and a pool of components that could take the place of one of its own."""

    V: Array
    pool: Array
    tag: Array
    share: Array


@record("pooled_bmf.Swaps")
class Swaps:
    """Up: the gain of each exchange."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    gains: Array
