"""The apps that Flower starts: fedfactor's own. Replace a line to wrap one of them."""

from fedfactor.flower import client_app, server_app

__all__ = ["client_app", "server_app"]
