"""What outlives a fitted estimator: a folder that is read back, or a table for other programs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
