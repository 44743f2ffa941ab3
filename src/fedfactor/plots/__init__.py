"""One function per figure: takes runs or arrays and an optional ``ax``, returns the ``ax``."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
