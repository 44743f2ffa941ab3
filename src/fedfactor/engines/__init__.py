"""Engines carry messages between the clients and the server. They run any algorithm and know none."""

from fedfactor.core.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
