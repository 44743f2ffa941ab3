from .folder import load as load
from .folder import load_run as load_run
from .folder import save as save
from .table import export as export
