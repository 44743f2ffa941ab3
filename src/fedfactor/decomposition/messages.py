"""What PooledPCA and PooledSVD send, keep at the server, and leave with clients."""

from __future__ import annotations

from typing import ClassVar

from fedfactor.core.algorithm import LocalFactors, Uplink
from fedfactor.core.pytree import Array, record


@record("pooled_pca.AskMoments")
class AskMoments:
    """Down: send the sums over all columns."""

    nothing: Array


@record("pooled_pca.AskProducts")
class AskProducts:
    """Down: orthonormal directions, a row for each."""

    Q: Array


@record("pooled_pca.Moments")
class Moments:
    """Up: half of ``XᵀX`` and the sums of columns. ``rows``: how many rows these are."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    half: Array
    total: Array
    rows: Array | None = None


@record("pooled_pca.Products")
class Products:
    """Up: ``Q XᵀX``, the sums of columns, the sum of squares, and the number of rows."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    Y: Array
    total: Array
    squares: Array
    rows: Array


@record("pooled_pca.Components")
class Components:
    """Down: components, the column means, singular values, variances, and the variance and number of all rows."""

    V: Array
    mean: Array
    singular: Array
    variances: Array
    variance: Array
    rows: Array


@record("pooled_pca.Local")
class Local:
    """Stays with the client: nothing but the number of rows."""

    n_rows: Array


@record("pooled_pca.Server")
class Server:
    """State of the server: sums of the last exchange, and all directions with their products."""

    rows: Array
    total: Array
    half: Array | None
    squares: Array
    Q: Array | None
    Y: Array | None
    asked: Array | None
    cohort: Array
    explained: Array
    done: Array


@record("pooled_pca.Totals")
class Totals:
    """Sums over all rows, on which the components depend."""

    half: Array
    total: Array
    rows: Array


@record("pooled_pca.PCAFactors")
class PCAFactors(LocalFactors):
    """Rows in the coordinates of the components (U), the components (V), the column means, and the scale of U."""

    mean: Array | None = None
    scale: Array | None = None
