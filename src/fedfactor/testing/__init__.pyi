from .algorithms import Check as Check
from .algorithms import algorithm_checks as algorithm_checks
from .algorithms import check_algorithm as check_algorithm
from .engines import check_engine as check_engine
from .engines import engine_checks as engine_checks
from .flaky import Flaky as Flaky
from .probe import Probe as Probe
from .recommenders import check_recommender as check_recommender
from .recommenders import recommender_checks as recommender_checks

__all__ = [
    "Check",
    "Flaky",
    "Probe",
    "algorithm_checks",
    "check_algorithm",
    "check_engine",
    "check_recommender",
    "engine_checks",
    "recommender_checks",
]
