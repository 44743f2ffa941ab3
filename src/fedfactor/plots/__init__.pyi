from .axes import panels as panels
from .clients import plot_client_errors as plot_client_errors
from .components import mosaic as mosaic
from .components import plot_components as plot_components
from .drift import plot_drift as plot_drift
from .drift import plot_similarity as plot_similarity
from .history import plot_history as plot_history

__all__ = ["mosaic", "panels", "plot_client_errors", "plot_components", "plot_drift", "plot_history", "plot_similarity"]
