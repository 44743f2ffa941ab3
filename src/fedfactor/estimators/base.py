"""Base class of the estimators over rows: validate, split, run, keep the results."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn import get_config
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from fedfactor.core.algorithm import Algorithm, Domain, LocalFactors
from fedfactor.core.client_data import Federation, Missing, Shard
from fedfactor.core.errors import DataError, IncompatibleError, callers_level
from fedfactor.core.input_validation import as_matrix, check_values
from fedfactor.core.missing_policies import accepts_sparse, check_missing
from fedfactor.core.pytree import Array, is_mapping
from fedfactor.core.run import NotPublished, Run
from fedfactor.estimators import inputs as _inputs
from fedfactor.estimators.estimator import FederatedEstimator
from fedfactor.io import groups as owned
from fedfactor.io.partition import join_rows, row_positions
from fedfactor.io.run_record import Preprocessed
from fedfactor.linalg.factors import reconstruction
from fedfactor.linalg.products import as_like

_EXACT_ERRORS = ("reconstruction_err_", "relative_error_")


class FederatedTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, FederatedEstimator):
    """An estimator over rows: its parameters are those of one algorithm and those of a run.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, shared by all clients.
    client_factors_ : dict of str to array of shape (n_c, n_components)
        U of each client. Only a simulation has them all.
    reconstruction_err_, relative_error_ : float
        ``‖X − UV‖``, and the same divided by ``‖X‖``, over observed cells. Not after a run with noise, whose promise
        does not cover them: see ``run_.owners_only``.
    n_iter_ : int
        Rounds that were run.
    run_ : Run
        History, traffic, time, errors by client, and the seed.
    n_components_, n_features_in_ : int
        The shape of V.
    feature_names_in_ : ndarray of str
        Only when the features have names.
    """

    n_components: int
    missing_values: Missing
    _warns_at_last_round: ClassVar[bool] = True

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Find the components that all clients share.

        Parameters
        ----------
        X : array, sparse matrix, data frame or tensor of shape (n, m); Federation, mapping or list of such
            All rows in one matrix, or the rows of each client. Clients in a list are named ``"0"``, ``"1"``, ...
        y : None
            Ignored.
        groups : array-like of shape (n,) or str, optional
            The client of each row, or the name of the column of X (of ``obs`` for AnnData) that holds it.
            By default rows are dealt at random to ``n_clients`` clients.

        Returns
        -------
        self
        """
        self._learn(X, groups)
        return self

    def fit_transform(self, X: Any, y: Any = None, *, groups: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Fit, and return U: rows in the order of X, or a dict from client to U when X came with its clients.

        Parameters
        ----------
        X, y, groups
            As in :meth:`fit`.

        Returns
        -------
        U : array of shape (n, n_components), or dict of such
        """
        self._check_output(X)
        labels = self._learn(X, groups)
        if owned.is_owned(X):
            return {name: copied(U) for name, U in self.client_factors_.items()}
        if labels is None:
            return copied(self.client_factors_["0"])
        positions = row_positions(labels)
        elsewhere = sorted(set(positions) - set(self.client_factors_))
        if elsewhere:
            raise IncompatibleError(
                f"U of owner {elsewhere[0]!r} is on another rank: this process holds its own owners only. Use fit, "
                "then client_factors_."
            )
        return join_rows(self.client_factors_, positions)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what ``transform`` returns, as in scikit-learn: ``"default"``, ``"pandas"`` or ``"polars"``."""
        if transform is not None:
            self._output = transform
        return super().set_output(transform=transform)

    def _gives_frames(self) -> bool:
        return getattr(self, "_output", get_config()["transform_output"]) != "default"

    def transform(self, X: Any, client: str | None = None) -> Any:
        """Find U for rows that need not have been in the run; V alone is needed, nothing is sent.

        Parameters
        ----------
        X : array, sparse matrix, data frame or tensor of shape (n, m); Federation, mapping or list of such
            Rows with the features of :meth:`fit`.
        client : str, optional
            The client whose rows these are, for methods that give clients components of their own.

        Returns
        -------
        U : array of shape (n, n_components), or dict of such
            Of the library and the floating type of X.
        """
        check_is_fitted(self)
        self._check_output(X)
        factors = self._factors(client)
        if factors.V_private is not None and self._gives_frames():
            raise IncompatibleError(
                f"set_output names one column for each shared component, but client={client!r} adds that owner's own. "
                "Use set_output(transform='default')."
            )

        def fold_in(shard: Shard) -> Array:
            return self.run_.algorithm.fold_in(shard.X, factors, shard.mask)

        return self._each(X, fold_in)

    def inverse_transform(self, U: Any) -> Array:
        """Return ``U V`` in the units of the rows that ``transform`` takes: the rows as approximated by the factors.

        Parameters
        ----------
        U : array of shape (n, n_components)

        Returns
        -------
        X : array of shape (n, n_features)
            Preprocessing that ``transform`` applies to new rows (scales, log1p) is undone. Row sums and thresholds
            cannot be.
        """
        U, V = with_components(self, U)
        return U @ V if self.preprocess_ is None else self.preprocess_.undo(U @ V)

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the relative error ``‖X − UV‖ / ‖X‖`` of rows under the components: higher is better.

        For counts it is measured by their divergence, as ``relative_error_`` is.

        Parameters
        ----------
        X : as in :meth:`transform`
        y : None
            Ignored.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        factors = self._factors(None)

        def error(shard: Shard) -> tuple[float, int, float]:
            U = self.run_.algorithm.fold_in(shard.X, factors, shard.mask)
            return self._error(shard, U, as_like(factors.V, U))

        found = self._each(X, error)
        parts: list[tuple[float, int, float]] = list(found.values()) if is_mapping(found) else [found]
        sse = sum(part[0] for part in parts)
        total = sum(part[2] for part in parts)
        return -math.sqrt(sse / total) if total > 0 else 0.0

    def _learn(self, X: Any, groups: Any, *, further: bool = False) -> Any:
        """Run the algorithm; return the client of each row, None when one client has all or X came with its clients.

        ``further``: on rows after those of a fit, in the same features and preprocessed alike.
        """
        algorithm, engine, seed = self._settings()
        algorithm = self._begun(algorithm, further)
        labels, federation = self._divided(X, groups, algorithm, seed, further)
        done = federation.preprocess
        if further:
            federation.prepare(algorithm.domain)
            self._check_same_features(federation)
            if done is not None:
                raise DataError(
                    f"These rows were preprocessed among themselves ({', '.join(done['steps'])}). Give further rows as "
                    "they are: what was done to those of fit is done to them."
                )
            federation = self._preprocessed(federation)
            done = None if self.preprocess_ is None else self.preprocess_.record()
        federation = self._encode(federation)
        federation.preprocess = done
        self._keep(self._run(algorithm, federation, engine, seed), federation)
        return labels

    def _divided(self, X: Any, groups: Any, algorithm: Algorithm, seed: int, further: bool) -> tuple[Any, Federation]:
        """Return who owns each row, as :meth:`_learn` returns it, and give the clients their rows."""
        if owned.is_owned(X):
            if groups is not None:
                raise DataError(
                    "groups says who owns each row of one matrix, but this X comes with its owners. Leave groups out."
                )
            if not further:
                vars(self).pop("feature_names_in_", None)  # of an earlier fit
            return None, owned.federation_of(X, self.missing_values)
        X, groups = owned.column_of_groups(X, groups)
        X = _inputs.matrix(self, X, reset=not further)
        labels = owned.owner_labels(X.shape[0], groups, self.n_clients, seed)
        return labels, owned.split(X, labels, self.missing_values, getattr(self, "feature_names_in_", None))

    def _federated(self, data: Any, algorithm: Algorithm, seed: int) -> Federation:
        federation = self._divided(data, None, algorithm, seed, False)[1]
        done = federation.preprocess
        federation = self._encode(federation)
        federation.preprocess = done
        return federation

    def _begun(self, algorithm: Algorithm, further: bool) -> Algorithm:
        """Let an estimator continue from its last fit."""
        return algorithm

    def _error(self, shard: Shard, U: Array, V: Array) -> tuple[float, int, float]:
        """Measure errors by the loss of the estimator."""
        return reconstruction(shard.X, U, V, shard.mask)

    def _encode(self, federation: Federation) -> Federation:
        """Transform the rows of each client into what the algorithm takes."""
        return federation

    def _settings(self) -> tuple[Algorithm, Any, int]:
        found = super()._settings()
        check_missing(self.missing_values)
        return found

    def _keep(self, result: Run, federation: Federation) -> None:
        self._adopt(result, federation)
        tol = getattr(result.algorithm, "tol", 0)
        if result.status == "rounds" and tol > 0 and self._warns_at_last_round:
            warnings.warn(
                f"{type(self).__name__} used all {result.rounds} rounds before it converged to tol={tol:g}"
                f"{result.still_expected}. Raise rounds, raise tol, or set tol=0 to use all rounds without this test.",
                ConvergenceWarning,
                stacklevel=callers_level(),
            )

    def _adopt(self, result: Run, federation: Federation) -> None:
        """Take over a run, whether it has just ended or was read from a folder."""
        self.run_ = result
        self.components_ = result.V
        self.n_components_ = int(result.V.shape[0])
        self.client_factors_ = {name: kept.U for name, kept in result.factors.items()}
        self.n_iter_ = result.rounds
        if result.owners_only is None:  # exact errors of a private run are not published under the estimator's name
            self.reconstruction_err_ = math.sqrt(float(result.score.sse))
            self.relative_error_ = result.relative_error
        else:
            for name in _EXACT_ERRORS:
                vars(self).pop(name, None)
        self.n_features_in_ = int(result.V.shape[1])
        self._missing = federation.missing_values
        self.preprocess_ = Preprocessed.of(federation.preprocess, self.n_features_in_)
        if result.feature_names is not None:
            self.feature_names_in_ = np.asarray(result.feature_names, dtype=object)

    def __getattr__(self, name: str) -> Any:
        run = self.__dict__.get("run_")
        if name in _EXACT_ERRORS and run is not None and run.owners_only is not None:
            raise NotPublished(
                f"{name} is not released after a run with differential privacy, whose promise does not cover it. In a "
                "simulation -model.score(X) computes it from the rows; run_.owners_only has what each owner may see."
            )
        return object.__getattribute__(self, name)  # raises, with the cause that a descriptor gives

    def _factors(self, client: str | None) -> LocalFactors:
        known = self.run_.factors
        if client is not None and str(client) not in known:
            raise ValueError(
                f"No owner is called {client!r}; the run knew {', '.join(sorted(known))}. "
                "Use client=None for the shared components."
            )
        kept = next(iter(known.values())) if client is None else known[str(client)]
        return replace(kept, V=self.components_, V_private=None, U_private=None) if client is None else kept

    def _each(self, X: Any, work: Any) -> Any:
        """Check new rows as fit does and work on them: on one matrix, or on each client's."""
        domain = self.run_.algorithm.domain
        if not owned.is_owned(X):
            rows = Federation({"new rows": _inputs.matrix(self, X, reset=False)}, missing_values=self._missing)
            shard = self._encode(self._preprocessed(rows)).shard("new rows")
            check_values("new rows", shard.X, shard.mask, domain)
            return work(shard)
        federation = owned.federation_of(X, self._missing)
        federation = self._encode(federation if federation.preprocess else self._preprocessed(federation))
        federation.prepare(domain)
        self._check_same_features(federation)
        return {name: work(federation.shard(name)) for name in federation.names}

    def _preprocessed(self, federation: Federation) -> Federation:
        """Do to new rows what was done to those of the run."""
        return federation if self.preprocess_ is None else self.preprocess_.apply_all(federation)

    def _check_output(self, X: Any) -> None:
        if owned.is_owned(X) and self._gives_frames():
            raise IncompatibleError(
                "set_output asks for one frame, but this X comes with its owners and gives a dict, one U for each. Use "
                "set_output(transform='default')."
            )

    def _check_same_features(self, federation: Federation) -> None:
        if federation.n_features != self.n_features_in_:
            raise DataError(
                f"X has {federation.n_features} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input."
            )
        names = federation.feature_names
        known = getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and names != tuple(known):
            raise DataError("The feature names should match those that were passed during fit, in the same order.")

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        missing = self.missing_values
        tags.input_tags.positive_only = self._method.domain != Domain.REAL
        tags.input_tags.sparse = accepts_sparse(missing)
        tags.input_tags.allow_nan = self._method.handles_missing and isinstance(missing, float) and math.isnan(missing)
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def with_components(estimator: Any, U: Any) -> tuple[Array, Array]:
    """Return U as a matrix, and the components in its library and type."""
    check_is_fitted(estimator)
    U, _ = as_matrix(U)
    k = estimator.components_.shape[0]
    if U.shape[1] != k:
        raise DataError(f"U has {U.shape[1]} columns, but there are {k} components. Pass what transform returns.")
    return U, as_like(estimator.components_, U)


def copied(U: Array) -> Array:
    """Copy, so that a later step that works in place does not change what the run keeps."""
    return U.clone() if hasattr(U, "detach") else U.copy()
