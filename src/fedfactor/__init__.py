"""Factor matrices together without sharing them."""

from typing import Any

import lazy_loader

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name != "__version__":
        return _public(name)
    # Late, because reading the installed metadata costs more than all the rest of this import.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fedfactor")
    except PackageNotFoundError:  # a source tree on the path, not an installation
        return "0+unknown"
