"""Principal components and singular vectors with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np

from fedfactor import algorithms
from fedfactor.core.algorithm import Algorithm, LocalFactors
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.parameters import Declared
from fedfactor.core.pytree import Array, to_numpy
from fedfactor.core.run import Run
from fedfactor.decomposition.incremental import KeepsTotals
from fedfactor.decomposition.pca import Solver
from fedfactor.engines.engine import Engine
from fedfactor.estimators.base import with_components
from fedfactor.estimators.columns import ColumnSplitEstimator
from fedfactor.estimators.parameter_names import accept_other_names
from fedfactor.io.partition import row_positions
from fedfactor.linalg.products import as_like


class _Spectral(KeepsTotals):
    """An estimator whose components are orthonormal and have variances.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V: orthonormal rows, the largest variance first; of each, the entry of largest absolute value is positive.
    explained_variance_, explained_variance_ratio_ : array of shape (n_components,)
        Variance along each component, and its share of the variance of all columns.
    singular_values_ : array of shape (n_components,)
        Singular values of the rows of all clients together.
    reconstruction_err_, relative_error_ : float
        Norm of what the components leave of the rows, and the same divided by ``‖X‖``. Not after a run with noise.
    n_samples_ : int
        Rows of all clients; with noise that protects rows, their public number.
    """

    n_components: Any
    _bounds: ClassVar[Mapping[str, Declared]] = {"n_components": Declared(check=False)}
    _expressed_otherwise: ClassVar[frozenset[str]] = frozenset({"variance_share"})

    def _algorithm_parameters(self) -> dict[str, Any]:
        """Return the parameters of the algorithm, of which a share of the variance is one of its own."""
        k: Any = self.n_components
        given = super()._algorithm_parameters()
        if k is None or (isinstance(k, Integral) and k == 0):  # 0: as the record of a run writes None
            return {**given, "n_components": 0}
        if isinstance(k, Real) and 0 < float(k) < 1:
            return {**given, "n_components": 0, "variance_share": float(k)}
        if not isinstance(k, Integral) or isinstance(k, (bool, np.bool_)) or k < 0:
            raise ValueError(
                f"n_components={k!r} must be a whole number of at least 1, a share of the variance between 0 and 1, or "
                "None for all components."
            )
        return given

    def _error(self, shard: Shard, U: Array, V: Array) -> tuple[float, int, float]:
        score = self.run_.algorithm.score(shard, replace(self._factors(None), U=U, V=V), self.run_.down)
        return float(score.sse), int(score.n), float(score.total)

    def _adopt(self, result: Run, federation: Federation) -> None:
        super()._adopt(result, federation)
        fitted: Any = result.algorithm.fitted
        kind = to_numpy(self.components_).dtype
        self.singular_values_, self.explained_variance_ = (np.asarray(part, kind) for part in fitted[1:3])
        variance, rows = fitted[3]
        self.explained_variance_ratio_ = (
            self.explained_variance_ / variance if variance > 0 else np.zeros_like(self.explained_variance_)
        )
        self.n_samples_ = int(rows)


@accept_other_names(max_iter="rounds")
class PooledPCA(ColumnSplitEstimator, _Spectral):
    """Principal component analysis as if all rows lay in one place, from sums alone.

    Parameters
    ----------
    n_components : int, float or None, default=None
        Number of components; a number between 0 and 1: as many as explain more than this share of the variance; None:
        as many as there are.
    solver : {"auto", "gram", "subspace"}, default="auto"
        ``"gram"``: one exchange of m(m + 1)/2 numbers, exact. ``"subspace"``: in each of a few exchanges
        (k + oversampling) m numbers; needs ``n_components``. ``"auto"``: the Gram matrix up to 2048 columns.
    oversampling : int, at least 0, default=20
        Directions beyond ``n_components`` in each exchange of the subspace solver.
    whiten : bool, default=False
        Divide the columns of U by their standard deviation.
    split : {"rows", "columns"}, default="rows"
        What clients hold: rows with the same columns, or columns of the same rows, which are matched by their ids. The
        solvers then depend on the number of rows as they do on that of columns otherwise.
    rounds : int, optional
        Maximum number of exchanges of the subspace solver; default 4. ``max_iter`` is an alias.
    missing_values : nan, number or "unstored", optional
        Marker of missing values, with which rows are rejected: impute them first, or use
        :class:`~fedfactor.PooledNMF`.
    n_clients, random_state, verbose, engine, privacy, device, storage, callbacks, checkpoint
        As in :class:`~fedfactor.PooledNMF`.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V: orthonormal rows, the largest variance first; of each, the entry of largest absolute value is positive.
    explained_variance_, explained_variance_ratio_ : array of shape (n_components,)
        Variance along each component, and its share of the variance of all columns.
    singular_values_ : array of shape (n_components,)
        Singular values of the rows of all clients together.
    reconstruction_err_, relative_error_ : float
        Norm of what the components leave of the rows, and the same divided by ``‖X‖``. Not after a run with noise.
    n_samples_ : int
        Rows of all clients; with noise that protects rows, their public number.
    mean_ : array of shape (n_features,)
        Mean of each column over the rows of all clients.
    noise_variance_ : float
        Mean variance along the directions that are not among the components.
    n_iter_ : int
        Number of exchanges.
    client_factors_, run_
        As in :class:`~fedfactor.PooledNMF`.

    Notes
    -----
    With m columns, the Gram matrix takes one exchange of m (m + 1) / 2 numbers from each client and O(n m²) time; the
    subspace solver sends (k + oversampling) m numbers in each exchange and takes O(n m k) time.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import PooledPCA
    >>> X = np.random.default_rng(0).standard_normal((30, 5)) * [5, 2, 1, 1, 1]
    >>> model = PooledPCA(n_components=2).fit(X, groups=["north"] * 10 + ["south"] * 20)
    >>> model.transform(X).shape, bool(model.explained_variance_ratio_.sum() > 0.8)
    ((30, 2), True)
    """

    _method = algorithms.PooledPCA

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        solver: Solver = "auto",
        oversampling: int = 20,
        whiten: bool = False,
        split: Literal["rows", "columns"] = "rows",
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        device: str | None = None,
        storage: Literal["float64", "float32", "bfloat16"] | None = None,
        missing_values: float | str | None = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None:
        super().__init__(rounds, n_clients, engine, privacy, random_state, verbose, callbacks, checkpoint)
        self.n_components = n_components
        self.solver = solver
        self.oversampling = oversampling
        self.whiten = whiten
        self.split = split
        self.device = device
        self.storage = storage
        self.missing_values = missing_values

    def inverse_transform(self, U: Any) -> Array:
        """Return rows from their coordinates: ``U V`` plus the mean of each column.

        Parameters
        ----------
        U : array of shape (n, n_components)

        Returns
        -------
        X : array of shape (n, n_features)
        """
        U, V = with_components(self, U)
        if self.whiten:
            scale = np.maximum(np.sqrt(self.explained_variance_), np.finfo(self.explained_variance_.dtype).eps)
            U = U * as_like(scale, U)
        rows = U @ V + as_like(self.mean_, U)
        return rows if self.preprocess_ is None else self.preprocess_.undo(rows)

    def _adopt(self, result: Run, federation: Federation) -> None:
        super()._adopt(result, federation)
        fitted: Any = result.algorithm.fitted
        self.mean_ = np.asarray(fitted[0], self.explained_variance_.dtype)
        fewest = min(self.n_samples_, self.n_features_in_)
        k = self.n_components_
        left = max(fitted[3][0] - sum(fitted[2]), 0.0)
        self.noise_variance_ = left / (fewest - k) if fewest > k else 0.0

    def _divided(self, X: Any, groups: Any, algorithm: Algorithm, seed: int, further: bool) -> tuple[Any, Federation]:
        labels, federation = super()._divided(X, groups, algorithm, seed, further)
        if self.split == "columns":
            # In a simulation the means of all columns are at hand; each client of a federation has those of its own.
            self._means = {name: federation.shard(name).X.mean(axis=1) for name in federation.names}
        return labels, federation

    def _turn(self, labels: Any) -> None:
        """Exchange the roles, and leave a run that describes rows as that of a fit to rows does."""
        algorithm: Any = self.run_.algorithm
        super()._turn(labels)
        n_rows = self._common.shape[0]
        positions = {"0": np.arange(self.n_features_in_)} if labels is None else row_positions(labels)
        self.mean_ = np.empty(self.n_features_in_, self.components_.dtype)
        for name, columns in positions.items():
            self.mean_[columns] = self._means[name]
        self.n_samples_ = n_rows
        fewest = min(n_rows, self.n_features_in_)
        variance = algorithm.fitted[3][0]
        left = max(variance - sum(algorithm.fitted[2]), 0.0)
        self.noise_variance_ = left / (fewest - self.n_components_) if fewest > self.n_components_ else 0.0
        self.run_ = replace(self.run_, algorithm=algorithm.for_rows(self.mean_, n_rows))

    def _factors(self, client: str | None) -> LocalFactors:
        kept = super()._factors(client)
        return LocalFactors(kept.U, kept.V) if self.split == "columns" else kept


@accept_other_names(max_iter="rounds")
class PooledSVD(_Spectral):
    """Truncated singular value decomposition as if all rows lay in one place, from sums alone.

    Rows are not centered, as in scikit-learn's ``TruncatedSVD``: for sparse counts and word frequencies.

    Parameters
    ----------
    n_components : int, float or None, default=2
        Number of components; a number between 0 and 1: as many as explain more than this share of the variance; None:
        as many as there are.
    solver : {"auto", "gram", "subspace"}, default="auto"
        ``"gram"``: one exchange of m(m + 1)/2 numbers, exact. ``"subspace"``: in each of a few exchanges
        (k + oversampling) m numbers; needs ``n_components``. ``"auto"``: the Gram matrix up to 2048 columns.
    oversampling : int, at least 0, default=20
        Directions beyond ``n_components`` in each exchange of the subspace solver.
    rounds : int, optional
        Maximum number of exchanges of the subspace solver; default 4. ``max_iter`` is an alias.
    missing_values : nan, number or "unstored", optional
        Marker of missing values, with which rows are rejected: impute them first, or use
        :class:`~fedfactor.PooledNMF`.
    n_clients, random_state, verbose, engine, privacy, device, storage, callbacks, checkpoint
        As in :class:`~fedfactor.PooledNMF`.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, singular_values_, reconstruction_err_
        As in :class:`~fedfactor.PooledPCA`.
    relative_error_, n_samples_, n_iter_
        As in :class:`~fedfactor.PooledPCA`.
    client_factors_, run_
        As in :class:`~fedfactor.PooledNMF`.

    Notes
    -----
    With m columns, the Gram matrix takes one exchange of m (m + 1) / 2 numbers from each client and O(n m²) time; the
    subspace solver sends (k + oversampling) m numbers in each exchange and takes O(n m k) time.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import PooledSVD
    >>> X = np.random.default_rng(0).random((30, 2)) @ np.random.default_rng(1).random((2, 6))
    >>> model = PooledSVD(n_components=2, n_clients=3, random_state=0).fit(X)
    >>> bool(np.allclose(model.inverse_transform(model.transform(X)), X))
    True
    """

    _method = algorithms.PooledSVD

    def __init__(
        self,
        n_components: int | float | None = 2,
        *,
        solver: Solver = "auto",
        oversampling: int = 20,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        device: str | None = None,
        storage: Literal["float64", "float32", "bfloat16"] | None = None,
        missing_values: float | str | None = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None:
        super().__init__(rounds, n_clients, engine, privacy, random_state, verbose, callbacks, checkpoint)
        self.n_components = n_components
        self.solver = solver
        self.oversampling = oversampling
        self.device = device
        self.storage = storage
        self.missing_values = missing_values
