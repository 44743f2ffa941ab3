"""Engines carry messages between the clients and the server. They run any algorithm and know none."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
