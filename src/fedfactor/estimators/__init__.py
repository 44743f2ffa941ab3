"""Base classes of the estimators; the estimators themselves are attributes of :mod:`fedfactor` and of this module."""

from fedfactor.core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
