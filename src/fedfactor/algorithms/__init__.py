"""Who sends what: one file per published method. The stub beside this file is the list of them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
