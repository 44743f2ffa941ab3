from .folder import load as load
from .folder import save as save
from .run import load_run as load_run
from .table import export as export
