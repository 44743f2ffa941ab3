from .saved_models.estimator_folder import load as load
from .saved_models.estimator_folder import save as save
from .saved_models.run_folder import load_run as load_run
from .saved_models.table_export import export as export
