"""What happens to a message on its way: clipping, noise, secure sums, and the books that are kept of it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
