from .checks_for_algorithms import Check as Check
from .checks_for_algorithms import algorithm_checks as algorithm_checks
from .checks_for_algorithms import check_algorithm as check_algorithm
from .checks_for_engines import check_engine as check_engine
from .checks_for_engines import engine_checks as engine_checks
from .checks_for_recommenders import check_recommender as check_recommender
from .checks_for_recommenders import recommender_checks as recommender_checks
from .probe_algorithm import Probe as Probe
from .unreliable_clients import Flaky as Flaky

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
