"""How do I call it? The scikit-learn faces of the algorithms: the only room that sees scikit-learn."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
