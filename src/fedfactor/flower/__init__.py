"""Flower as an engine: a ServerApp and a ClientApp on Flower's public API, for ``flwr run``.

An app names them in its ``pyproject.toml``::

    [tool.flwr.app.components]
    serverapp = "server_app:app"
    clientapp = "client_app:app"

where ``server_app.py`` contains ``from fedfactor.flower import server_app as app``, and ``client_app.py`` the same of
``client_app``. They work in Flower's simulation engine and in a deployment of SuperLink and SuperNodes, with the terms,
the ledgers, the secure aggregation and the folders of the default transport. ``deploy/flower_app`` is an app to copy.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
