"""Rank selection, comparison of methods, and tuning of recommenders."""

from fedfactor.core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
