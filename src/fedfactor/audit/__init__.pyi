from .aggregate_attacks import differencing_error as differencing_error
from .aggregate_attacks import singleton_exposure as singleton_exposure
from .exposed_rows import row_exposure as row_exposure
from .findings import Finding as Finding
from .item_pairs import gram_from_weights as gram_from_weights
from .item_pairs import pair_exposure as pair_exposure
from .item_vectors import item_vector_membership as item_vector_membership
from .membership import membership_figures as membership_figures
from .membership import residual_scores as residual_scores
from .method_attacks import factor_inference as factor_inference
from .method_attacks import sketch_recovery as sketch_recovery
from .one_run_canaries import epsilon_lower_bound as epsilon_lower_bound
from .one_run_canaries import plant_canaries as plant_canaries
from .one_run_canaries import score_canaries as score_canaries
from .ratings import rating_attack as rating_attack
from .ratings import ratings_back as ratings_back
from .reconstruction import binary_rows_in_span as binary_rows_in_span
from .reconstruction import reconstruction_rate as reconstruction_rate
from .report import AuditReport as AuditReport
from .run_audit import audit as audit

__all__ = [
    "AuditReport",
    "Finding",
    "audit",
    "binary_rows_in_span",
    "differencing_error",
    "epsilon_lower_bound",
    "factor_inference",
    "item_vector_membership",
    "membership_figures",
    "plant_canaries",
    "reconstruction_rate",
    "residual_scores",
    "row_exposure",
    "score_canaries",
    "singleton_exposure",
    "sketch_recovery",
]
