"""Links by name: what the parties of a federation agree on in a file, both at the clients and at the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import fedfactor.privacy
from fedfactor.core.algorithm import Algorithm, Meta
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.parameters import with_tuples
from fedfactor.core.transforms import Transform
from fedfactor.privacy.agreed_noise import noisy_channel, whole_cohort
from fedfactor.privacy.ledger import Ledger
from fedfactor.privacy.pipeline import Channel
from fedfactor.privacy.planner import for_links, plain_channel

__all__ = ["agreed_channel", "agreed_links", "link_of"]


def link_of(entry: Mapping[str, Any]) -> Transform:
    """Make a link from its name in :mod:`fedfactor.privacy` and its settings.

    Examples
    --------
    >>> link_of({"link": "Clip", "norm": 2.0})
    Clip(norm=2.0)
    >>> link_of({"link": "Clipp"})
    Traceback (most recent call last):
    ...
    ValueError: there is no link 'Clipp' in fedfactor.privacy.
    """
    settings = dict(entry)
    name = settings.pop("link", None)
    kind = getattr(fedfactor.privacy, name) if name in dir(fedfactor.privacy) else None
    if not isinstance(kind, type) or not issubclass(kind, Transform) or not is_dataclass(kind):
        raise ValueError(f"there is no link {name!r} in fedfactor.privacy.")
    known = {field.name: field for field in fields(kind)}
    odd = sorted(set(settings) - set(known))
    if odd:
        raise ValueError(f"{name} has no setting {odd[0]!r}. Its settings are {', '.join(known)}.")
    needed = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
    lacking = [name for name in needed if name not in settings]
    if lacking:
        raise ValueError(f"{kind.__name__} needs the setting {lacking[0]!r}.")
    return kind(**with_tuples(settings))


def agreed_links(named: Sequence[Mapping[str, Any]], *, secure: bool, n_clients: int) -> tuple[Transform, ...]:
    """Make the links that parties agreed on; secure aggregation between parties needs every one of them."""
    links = tuple(link_of(entry) for entry in named)
    if any(link.hides for link in links):
        raise ValueError("secure aggregation is asked for with protect = 'secure-sum', not as a link.")
    return (*links, whole_cohort(n_clients)) if secure else links


def agreed_channel(
    named: Sequence[Mapping[str, Any]],
    algorithm: Algorithm,
    meta: Meta,
    run: str,
    *,
    secure: bool,
    noise: Mapping[str, Any] | None = None,
    folder: Path | None = None,
) -> Channel | None:
    """Make the channel that parties agreed on, for a client or for the server; None when uploads travel in the clear.

    Parameters
    ----------
    named : sequence of mappings
        Links, each by its name and settings.
    algorithm, meta
        Of the run.
    run : str
        Its name.
    secure : bool
        Whether the server sees sums only.
    noise : mapping, optional
        What :func:`~fedfactor.privacy.agreed_noise.agree_on_noise` made of the agreed budget.
    folder : Path, optional
        Where the server writes down what each round releases.
    """
    if noise:
        return noisy_channel(noise, algorithm, meta, run)
    links = agreed_links(named, secure=secure, n_clients=meta.n_clients)
    if not links:
        return None
    alike = for_links(links, algorithm)
    # The total number of rows is unknown here, so that equal weights go by each client's own.
    if getattr(algorithm, "weights", "equal") == "rows" and alike is not algorithm:
        raise IncompatibleError(
            "Under noise or a median clients must count alike, but this algorithm weighs them by rows. Set weights = "
            f"{getattr(alike, 'weights', 'equal')!r}."
        )
    noisy = any(link.noisy for link in links)
    ledgers = [Ledger(folder / "ledger.jsonl")] if noisy and folder is not None else []
    return plain_channel(links, algorithm, meta, run, ledgers, simulation=False)
