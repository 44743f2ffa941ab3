"""How good a factorisation is: reconstruction of each owner's rows, and agreement of components."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
