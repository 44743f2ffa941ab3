from . import algorithms as algorithms
from . import privacy as privacy
from .core.federation import Federation as Federation
from .core.federation import Shard as Shard
from .core.run import Run as Run
from .privacy.dp import dp as dp
from .engines.launch import run as run
from .engines.local import LocalEngine as LocalEngine

__all__ = ["Federation", "LocalEngine", "Run", "Shard", "algorithms", "dp", "privacy", "run"]
