"""The ServerApp: that of fedfactor. To do more in it, write a ServerApp that calls fedfactor.flower.serve."""

from fedfactor.flower import server_app as app

__all__ = ["app"]
