from . import algorithms as algorithms
from .core.federation import Federation as Federation
from .core.federation import Shard as Shard
from .core.run import Run as Run
from .engines.launch import run as run
from .engines.local import LocalEngine as LocalEngine

__all__ = ["Federation", "LocalEngine", "Run", "Shard", "algorithms", "run"]
