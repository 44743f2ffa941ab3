"""The losses of PooledNMF: a file for each, and a line for each in the list below."""

from __future__ import annotations

from fedfactor.algorithms.pooled_nmf.losses.kullback_leibler import KullbackLeibler
from fedfactor.algorithms.pooled_nmf.losses.loss import Loss
from fedfactor.algorithms.pooled_nmf.losses.squared_error import SquaredError

LOSSES: tuple[type[Loss], ...] = (
    SquaredError,
    KullbackLeibler,
)


def find_loss(setting: object, *, masked: bool = False) -> Loss:
    """Return the loss that a setting names, for complete rows or for rows with missing cells.

    Examples
    --------
    >>> find_loss("frobenius"), find_loss("frobenius", masked=True)
    (SquaredError(), MissingCells())
    >>> find_loss(1)
    KullbackLeibler(masked=False)
    """
    for kind in LOSSES:
        loss = kind.of(setting)
        if loss is not None:
            return loss.over(masked)
    known = ", ".join(kind.name for kind in LOSSES)
    raise ValueError(f"loss={setting!r} is not known. Use one of {known}.")
