from .algorithms import Check as Check
from .algorithms import algorithm_checks as algorithm_checks
from .algorithms import check_algorithm as check_algorithm
from .engines import check_engine as check_engine
from .engines import engine_checks as engine_checks
from .flaky import Flaky as Flaky
from .probe import Probe as Probe

__all__ = ["Check", "Flaky", "Probe", "algorithm_checks", "check_algorithm", "check_engine", "engine_checks"]
