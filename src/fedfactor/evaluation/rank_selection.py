"""The rank that predicts held-out cells best, found by clients who show no party a row."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from fedfactor.algorithms import PooledBMF, PooledNMF
from fedfactor.core.algorithm import Algorithm, Domain
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import DataError
from fedfactor.core.method import Method, algorithm_of, run_parameters
from fedfactor.core.run import Run
from fedfactor.engines.run import run
from fedfactor.evaluation.holdout import hold_out_all
from fedfactor.io.uneven_columns import even_columns
from fedfactor.linalg.cuda.device_rows import check_device
from fedfactor.privacy.dp import refuse_repeats

__all__ = ["RankSelection", "select_rank"]


@dataclass(frozen=True, slots=True)
class RankSelection:
    """What a search for the rank found.

    Attributes
    ----------
    ranks : tuple of int
        The candidates, rising.
    errors : ndarray of shape (repeats, n_ranks)
        Relative error over held-out cells of all clients together; each repeat holds out other cells.
    fitted : ndarray of shape (repeats, n_ranks)
        The same over the cells that were used. It falls with the rank and chooses nothing.
    best, recommended : int
        The rank of the least mean error; the smallest whose mean error is within one standard error of it, taken over
        the differences of each repeat, which share their cells.
    seed : int
    scaled : bool
        Whether columns were divided by their root mean square for the search; a fit should do the same.
    searched_with : str
        The algorithm that was run.
    """

    ranks: tuple[int, ...]
    errors: np.ndarray
    fitted: np.ndarray
    best: int
    recommended: int
    seed: int
    scaled: bool = False
    searched_with: str = ""

    @property
    def curve(self) -> np.ndarray:
        """Mean held-out error of each rank."""
        return self.errors.mean(axis=0)

    @property
    def at_edge(self) -> str:
        """Return a note if the best rank is the last candidate, or the first: a better one may lie beyond. Else empty.

        Examples
        --------
        >>> errors = np.array([[0.5, 0.4, 0.3]])
        >>> RankSelection((2, 3, 4), errors, errors, 4, 4, 0).at_edge
        'The best rank is the largest candidate, 4: a better one may lie beyond. Offer larger ones, for example 4-8.'
        """
        if len(self.ranks) < 2:
            return ""
        if self.ranks[-1] in (self.best, self.recommended):
            last = self.ranks[-1]
            return (
                f"The best rank is the largest candidate, {last}: a better one may lie beyond. Offer larger ones, for "
                f"example {last}-{2 * last}."
            )
        if self.best == self.ranks[0] > 1:
            first = self.ranks[0]
            return (
                f"The best rank is the smallest candidate, {first}: a better one may lie below. Offer smaller ones, "
                f"for example 1-{first}."
            )
        return ""

    def summary(self) -> dict[str, Any]:
        """Plain data, for a file."""
        return {
            "ranks": list(self.ranks),
            "held_out_error": self.curve.tolist(),
            "errors": self.errors.tolist(),
            "fitted_error": self.fitted.mean(axis=0).tolist(),
            "best": self.best,
            "recommended": self.recommended,
            "at_edge": self.at_edge or None,
            "scaled": self.scaled,
            "searched_with": self.searched_with,
            "seed": self.seed,
        }


def select_rank(
    federation: Federation | Mapping[str, Any] | Sequence[Any],
    ranks: Iterable[int],
    *,
    algorithm: Method | None = None,
    share: float = 0.1,
    repeats: int = 3,
    rounds: int | None = None,
    seed: int | None = None,
    engine: Any = None,
    privacy: Any = None,
    device: str | None = None,
    progress: Callable[[int, int, float], Any] | None = None,
) -> RankSelection:
    """Choose the number of components by speckled cross-validation.

    Each client marks a random share of its own cells as missing. The federation factors what is left; then each client
    measures how far the product is from its hidden cells, and the sums of those errors decide.

    Parameters
    ----------
    federation : Federation, mapping or list
        Who owns which rows.
    ranks : iterable of int
        Candidates.
    algorithm : estimator or Algorithm, optional
        Method whose ``n_components`` is to be chosen; it must handle missing values. Of an estimator ``rounds``,
        ``engine``, ``privacy`` and ``device`` are used where they are not given here. By default ``PooledNMF``; for
        binary data ``PooledBMF``, whose errors are then square roots of wrong cells over ones. For ``FELB``, ``FALB``
        and ``BooleanVotes``, which need complete rows, ``PooledBMF`` is used: its components are of the same kind.
    share : float, default=0.1
        Share of the cells that is hidden.
    repeats : int, default=3
        How often, with other cells and another start each time.
    rounds : int, optional
        Rounds of each run at most; by default the algorithm's own.
    seed : int, optional
        Drawn, and kept in the result, when None.
    engine, privacy
        As in :func:`fedfactor.run`; but ``dp(...)`` is refused, as its budget is that of one run and scores carry no
        noise. A score is a message like any other: see what protects it there.
    device : {"cpu", "cuda"}, optional
        As in :func:`fedfactor.run`; a GPU takes dense rows only, as hidden cells are missing ones.
    progress : function (done, of, error), optional
        Called after each run.

    Returns
    -------
    RankSelection

    Notes
    -----
    Named columns whose scales differ by a hundred or more are divided by their root mean square over all clients first,
    which takes their sums; else the largest columns alone would decide. Not with another loss than the squared one, and
    not with `privacy`, whose promise does not cover these sums.

    ``repeats`` × ``len(ranks)`` runs with missing cells. Cells, not rows, are hidden: a hidden row would have to be
    fitted on all its cells before it could be judged, and then any larger rank looks better.

    References
    ----------
    .. [1] S. Wold, "Cross-validatory estimation of the number of components in factor and principal components models",
       Technometrics 20 (1978). doi:10.1080/00401706.1978.10489693

    Examples
    --------
    >>> import fedfactor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.exponential(size=(90, 2)) @ rng.exponential(size=(2, 12)) * rng.uniform(0.9, 1.1, (90, 12))
    >>> found = fedfactor.select_rank({"a": X[:30], "b": X[30:]}, [1, 2, 3], repeats=2, rounds=30, seed=0)
    >>> found.recommended, found.errors.shape
    (2, (2, 3))
    """
    method = PooledNMF(1) if algorithm is None else algorithm
    algorithm = algorithm_of(method)
    how = run_parameters(method, rounds=rounds, engine=engine, privacy=privacy, device=device)
    privacy = how["privacy"]
    device = how["device"]
    if algorithm.domain == Domain.BINARY and not algorithm.handles_missing:
        algorithm = PooledBMF(1)  # unions of the same kind of components, and it can do without the hidden cells
    candidates = _check(algorithm, ranks, share, repeats)
    check_device(device)
    refuse_repeats(privacy, repeats * len(candidates), f"A search over {len(candidates)} ranks with repeats={repeats}")
    federation = federation if isinstance(federation, Federation) else Federation(federation)
    meta = federation.prepare(algorithm.domain)
    _with_rank(algorithm, candidates[-1]).check(meta)  # now, not after the runs of the smaller ones
    squares = algorithm.domain == Domain.NONNEGATIVE and getattr(algorithm, "loss", 2) in (2, "frobenius")
    even = even_columns(federation) if squares and privacy is None else None
    federation = federation if even is None else even
    seed = secrets.randbits(63) if seed is None else int(seed)
    errors, fitted = np.zeros((2, repeats, len(candidates)))
    for repeat in range(repeats):
        speckled = hold_out_all(federation, share, seed + repeat)
        for place, rank in enumerate(candidates):
            result = run(_with_rank(algorithm, rank), speckled, split="rows", seed=seed + repeat, **how)
            errors[repeat, place] = result.relative_error
            fitted[repeat, place] = _fitted(result)
            if progress is not None:
                progress(repeat * len(candidates) + place + 1, repeats * len(candidates), errors[repeat, place])
    best, recommended = recommend(errors)
    return RankSelection(
        candidates,
        errors,
        fitted,
        candidates[best],
        candidates[recommended],
        seed,
        even is not None,
        type(algorithm).__name__,
    )


def recommend(errors: np.ndarray) -> tuple[int, int]:
    """Return the place of the least mean error, and the first place that is as good up to one standard error.

    Examples
    --------
    >>> recommend(np.array([[0.9, 0.50, 0.49], [0.8, 0.50, 0.52]]))
    (1, 1)
    """
    if not np.isfinite(errors.mean(axis=0)).any():
        raise DataError(
            "No rank predicts the hidden cells at a finite error. Hide fewer cells (share), or take another loss."
        )
    best = int(np.argmin(errors.mean(axis=0)))
    behind = errors - errors[:, best : best + 1]
    spread = behind.std(axis=0, ddof=1) / np.sqrt(len(errors)) if len(errors) > 1 else np.zeros(errors.shape[1])
    return best, int(np.flatnonzero(behind.mean(axis=0) <= spread)[0])


def _with_rank(algorithm: Algorithm, rank: int) -> Algorithm:
    return replace(algorithm, n_components=rank)  # type: ignore[reportCallIssue]


def _fitted(result: Run) -> float:
    told = [record.metrics["relative_error"] for record in result.history if "relative_error" in record.metrics]
    return told[-1] if told else float("nan")


def _check(algorithm: Algorithm, ranks: Iterable[int], share: float, repeats: int) -> tuple[int, ...]:
    named = list(ranks)
    whole = all(isinstance(rank, Integral) and rank >= 1 for rank in named)
    if not named or not whole:
        raise ValueError(f"ranks={named} must name at least one candidate, and whole numbers from 1.")
    candidates = tuple(sorted({int(rank) for rank in named}))
    if not 0 < share < 1:
        raise ValueError(f"share={share} must lie between 0 and 1: the share of each owner's cells that is hidden.")
    if repeats < 1:
        raise ValueError(f"repeats={repeats} must be at least 1.")
    if not algorithm.handles_missing:
        raise ValueError(
            f"{type(algorithm).__name__} needs complete rows, but hidden cells are missing ones. Use PooledNMF, or "
            "PooledBMF for zeros and ones."
        )
    return candidates
