"""The ClientApp: that of fedfactor. To do more in it, write a ClientApp that calls fedfactor.flower.answer."""

from fedfactor.flower import client_app as app

__all__ = ["app"]
