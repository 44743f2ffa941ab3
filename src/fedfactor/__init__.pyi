from . import algorithms as algorithms
from . import estimators as estimators
from .core.errors import CheckpointError as CheckpointError
from .core.errors import DataError as DataError
from .core.errors import FedfactorError as FedfactorError
from .core.errors import IncompatibleError as IncompatibleError
from .core.errors import MissingExtraError as MissingExtraError
from .core.errors import ProtocolError as ProtocolError
from .core.federation import Federation as Federation
from .core.federation import Shard as Shard
from .core.run import Run as Run
from .engines.launch import run as run
from .engines.local import LocalEngine as LocalEngine
from .estimators.fnmf import FNMF as FNMF
from .estimators.fnmf import FedProxNMF as FedProxNMF
from .estimators.fnmf import OneShotNMF as OneShotNMF
from .estimators.nmf import FedAvgNMF as FedAvgNMF
from .estimators.nmf import PooledNMF as PooledNMF

__all__ = [
    "FNMF",
    "CheckpointError",
    "DataError",
    "FedAvgNMF",
    "FedProxNMF",
    "Federation",
    "FedfactorError",
    "IncompatibleError",
    "LocalEngine",
    "MissingExtraError",
    "OneShotNMF",
    "PooledNMF",
    "ProtocolError",
    "Run",
    "Shard",
    "algorithms",
    "estimators",
    "run",
]

__version__: str
