"""Attacks on our own runs: what an audit can refute, and what it can never show."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
