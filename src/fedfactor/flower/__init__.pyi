from .clientapp import answer as answer
from .clientapp import client_app as client_app
from .serverapp import serve as serve
from .serverapp import server_app as server_app
from .transport import GridTransport as GridTransport

__all__ = ["GridTransport", "answer", "client_app", "serve", "server_app"]
