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
from .estimators.boolean import FALB as FALB
from .estimators.boolean import FELB as FELB
from .estimators.boolean_discrete import ASSO as ASSO
from .estimators.boolean_discrete import MEBF as MEBF
from .estimators.boolean_discrete import GreConD as GreConD
from .estimators.boolean_pooled import BooleanVotes as BooleanVotes
from .estimators.boolean_pooled import PooledBMF as PooledBMF
from .estimators.boolean_relaxed import ELBMF as ELBMF
from .estimators.boolean_relaxed import PRIMP as PRIMP
from .estimators.boolean_relaxed import ZhangBMF as ZhangBMF
from .estimators.nmf import FedAvgNMF as FedAvgNMF
from .estimators.nmf import PooledNMF as PooledNMF

__all__ = [
    "ASSO",
    "ELBMF",
    "FALB",
    "FELB",
    "MEBF",
    "PRIMP",
    "BooleanVotes",
    "CheckpointError",
    "DataError",
    "FedAvgNMF",
    "Federation",
    "FedfactorError",
    "GreConD",
    "IncompatibleError",
    "LocalEngine",
    "MissingExtraError",
    "PooledBMF",
    "PooledNMF",
    "ProtocolError",
    "Run",
    "Shard",
    "ZhangBMF",
    "algorithms",
    "estimators",
    "run",
]

__version__: str
