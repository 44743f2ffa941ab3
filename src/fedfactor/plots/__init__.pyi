from .axes import panels as panels
from .choice import plot_comparison as plot_comparison
from .choice import plot_rank as plot_rank
from .clients import plot_client_errors as plot_client_errors
from .components import mosaic as mosaic
from .components import plot_components as plot_components
from .drift import plot_drift as plot_drift
from .drift import plot_similarity as plot_similarity
from .features import plot_top_features as plot_top_features
from .features import top_features as top_features
from .history import plot_history as plot_history
from .usage import plot_usage as plot_usage
from .usage import usage_by_owner as usage_by_owner

__all__ = [
    "mosaic",
    "panels",
    "plot_client_errors",
    "plot_comparison",
    "plot_components",
    "plot_drift",
    "plot_history",
    "plot_rank",
    "plot_similarity",
    "plot_top_features",
    "plot_usage",
    "top_features",
    "usage_by_owner",
]
