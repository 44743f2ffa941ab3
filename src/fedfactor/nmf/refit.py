"""What methods share whose clients keep U and solve it for the V that all agree on."""

from __future__ import annotations

from typing import Any

from fedfactor.core.algorithm import Algorithm, LocalFactors, Meta, Score
from fedfactor.core.client_data import Shard
from fedfactor.core.input_validation import check_rank
from fedfactor.core.pytree import Array
from fedfactor.linalg.factors import reconstruction, refit_rows
from fedfactor.linalg.products import as_like


class RefitRows(Algorithm):
    """A method of rank ``n_components`` that ends with U solved for V."""

    __slots__ = ()

    n_components: int

    def check(self, meta: Meta) -> None:
        """Refuse a rank that the data cannot carry."""
        check_rank(self.n_components, meta)

    def finish(self, shard: Shard, state: Any, down: Any) -> LocalFactors:
        """Solve U for the final V."""
        V = as_like(down.V, shard.X)
        return LocalFactors(refit_rows(state.U, shard.X, V), V)

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Solve U for new rows."""
        return refit_rows(None, X, as_like(factors.V, X), mask)

    def score(self, shard: Shard, state: Any, down: Any) -> Score:
        """Measure the error over all cells."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        return Score.of(*reconstruction(shard.X, factors.U, factors.V, shard.mask))
