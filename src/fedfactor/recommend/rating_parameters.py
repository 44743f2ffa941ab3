"""The model of ratings by non-negative parts and biases, as PooledCNMF and FedSPLIT set it."""

from __future__ import annotations

from dataclasses import KW_ONLY

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.recommend.local_cnmf import RatingPenalty


@declares_settings
class RatingParts(Algorithm):
    """Parameters of that model in both methods; see :class:`~fedfactor.recommend.local_cnmf.RatingPenalty`."""

    n_components: int = setting("Rank k.", at_least=1)
    _: KW_ONLY
    start_scale: float = setting("Factors start between 0 and this.", default=1.0, above=0)
    alpha: float = setting("Regularisation of user factors.", default=0.06, at_least=0)
    beta: float = setting("Regularisation of item factors.", default=0.06, at_least=0)
    gamma: float = setting("Regularisation of user biases.", default=0.02, at_least=0)
    delta: float = setting("Regularisation of item biases.", default=0.02, at_least=0)
    eta_user: float = setting("Learning rate of user biases.", default=0.005, at_least=0)
    eta_item: float = setting("Learning rate of item biases.", default=0.005, at_least=0)
    by_count: bool = setting("Multiply the regularisations of factors by numbers of ratings.", default=True)

    @property
    def penalty(self) -> RatingPenalty:
        """The last seven."""
        return RatingPenalty(*(getattr(self, name) for name in RatingPenalty._fields))
