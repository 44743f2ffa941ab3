"""The losses of PooledNMF: a file for each, and a line for each below."""

from __future__ import annotations

from inspect import isabstract

from fedfactor.nmf.pooled.losses.beta_divergence import BetaDivergence as BetaDivergence
from fedfactor.nmf.pooled.losses.itakura_saito import ItakuraSaito as ItakuraSaito
from fedfactor.nmf.pooled.losses.kullback_leibler import KullbackLeibler as KullbackLeibler
from fedfactor.nmf.pooled.losses.loss import Loss
from fedfactor.nmf.pooled.losses.squared_error import SquaredError as SquaredError

LOSSES: dict[str, type[Loss]] = {
    kind.name: kind
    for kind in dict(globals()).values()
    if isinstance(kind, type) and issubclass(kind, Loss) and not isabstract(kind)
}
"""Every loss that is imported here, by the name that users know."""


def find_loss(setting: object, *, masked: bool = False) -> Loss:
    """Return the loss that a setting names, for complete rows or for rows with missing cells.

    Examples
    --------
    >>> find_loss("frobenius"), find_loss("frobenius", masked=True)
    (SquaredError(), MissingCells())
    >>> find_loss(1)
    KullbackLeibler(masked=False)
    """
    for kind in LOSSES.values():
        loss = kind.of(setting)
        if loss is not None:
            return loss.over(masked)
    raise ValueError(f"loss={setting!r} is not known. Use one of {', '.join(sorted(LOSSES))}.")
