from .apps import answer as answer
from .apps import client_app as client_app
from .apps import serve as serve
from .apps import server_app as server_app
from .transport import GridTransport as GridTransport

__all__ = ["GridTransport", "answer", "client_app", "serve", "server_app"]
