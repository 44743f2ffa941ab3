"""Choosing settings by what they predict of data held out inside the training data."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
