"""Checks that any algorithm and any engine must pass: ours, and other people's."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
