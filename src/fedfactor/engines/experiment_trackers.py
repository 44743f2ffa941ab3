"""Callbacks that write a run where experiments are kept: TensorBoard's files, or an MLflow server or folder."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from fedfactor.core.algorithm import Algorithm, Meta, settings_of
from fedfactor.core.errors import MissingExtraError
from fedfactor.core.run import RoundRecord, Run
from fedfactor.engines.engine import Callback

__all__ = ["MLflow", "TensorBoard"]


def _told(record: RoundRecord) -> dict[str, float]:
    """Name the figures of a round: what the server could see of the error, what travelled, who took part."""
    seen = {f"server/{name}": float(value) for name, value in record.metrics.items()}
    return {
        **seen,
        "traffic/bytes_up": float(record.bytes_up),
        "traffic/bytes_down": float(record.bytes_down),
        "owners/took_part": float(len(record.participants)),
        "owners/left_out": float(len(record.rejected)),
    }


def _ended(run: Run) -> dict[str, float]:
    """Name the figures of a finished run; none of a client's own errors where privacy was asked for."""
    found = {"result/rounds": float(run.rounds)}
    if run.owners_only is None:
        found["result/relative_error"] = run.relative_error
    if run.privacy is None:
        found["result/worst_owner_error"] = run.worst_client[1]
    return found


class TensorBoard(Callback):
    """Writes every round to files that TensorBoard shows; needs the extra ``tensorboard`` (the package tensorboardX).

    Every run gets a folder of its own within ``folder``, so that several starts, or fits, lie side by side. Look at
    them with ``tensorboard --logdir FOLDER``.

    Parameters
    ----------
    folder : path
        Where the folders of runs are made.
    name : str, optional
        What a run's folder is called; by default the algorithm's name. A number is added where one of that name is.

    Examples
    --------
    >>> import tempfile, numpy as np, fedfactor
    >>> from fedfactor.engines.experiment_trackers import TensorBoard
    >>> X = np.random.default_rng(0).random((30, 6))
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     model = fedfactor.PooledNMF(2, callbacks=[TensorBoard(folder)]).fit(X)
    """

    def __init__(self, folder: str | os.PathLike[str], name: str | None = None) -> None:
        self.folder = Path(folder)
        self.name = name
        _package("tensorboardX", "tensorboard", "The callback TensorBoard")  # before the run, not after its first round
        self._writer: Any = None

    def on_start(self, algorithm: Algorithm, meta: Meta, rounds: int, first: int) -> None:
        """Open the run's folder, and write the settings there."""
        name = self.name or type(algorithm).__name__
        number = 1
        while (place := self.folder / (name if number == 1 else f"{name}-{number}")).exists():
            number += 1
        self._writer = _package("tensorboardX", "tensorboard", "The callback TensorBoard").SummaryWriter(str(place))
        lines = [f"    {key} = {value}" for key, value in _about(algorithm, meta).items()]
        self._writer.add_text("settings", "\n".join(lines), first)

    def on_round(self, record: RoundRecord) -> bool | None:
        """Write one point of every curve."""
        for name, value in _told(record).items():
            self._writer.add_scalar(name, value, record.index + 1)
        self._writer.flush()  # observers of a long run want to see this round

    def on_end(self, run: Run | None) -> None:
        """Write how it ended, and close the files."""
        if self._writer is None:
            return
        if run is not None:
            for name, value in _ended(run).items():
                self._writer.add_scalar(name, value, run.rounds)
            self._writer.add_text("ended", run.status, run.rounds)
        self._writer.close()
        self._writer = None


class MLflow(Callback):
    """Logs a run to MLflow; needs the extra ``mlflow`` (mlflow-skinny with what data bases need, or mlflow itself).

    Settings become parameters, the figures of every round metrics by round; status and seed become tags. Within a run
    of MLflow that is open already, a nested one is begun; experiment and server are MLflow's own settings
    (``mlflow.set_experiment``, ``MLFLOW_TRACKING_URI``), by default the file ``mlflow.db`` in the working directory.
    **What is logged leaves this machine where that server is another one**: no rows and no factors, but the errors
    that the run itself publishes.

    Parameters
    ----------
    name : str, optional
        What the run is called; by default the algorithm's name.

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> from fedfactor.engines.experiment_trackers import MLflow
    >>> X = np.random.default_rng(0).random((30, 6))
    >>> model = fedfactor.PooledNMF(2, callbacks=[MLflow("first try")]).fit(X)  # doctest: +SKIP
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        _package("mlflow", "mlflow", "The callback MLflow")
        self._open = False

    def on_start(self, algorithm: Algorithm, meta: Meta, rounds: int, first: int) -> None:
        """Begin a run of MLflow."""
        mlflow = _package("mlflow", "mlflow", "The callback MLflow")
        if mlflow.get_tracking_uri().partition(":")[0].partition("+")[0] in _DATA_BASES:
            for package in ("sqlalchemy", "alembic"):  # mlflow-skinny alone knows servers and folders only
                _package(package, "mlflow", "The callback MLflow with a data base")
        mlflow.start_run(run_name=self.name or type(algorithm).__name__, nested=mlflow.active_run() is not None)
        self._open = True
        mlflow.log_params(_about(algorithm, meta))

    def on_round(self, record: RoundRecord) -> bool | None:
        """Log one round."""
        _package("mlflow", "mlflow", "The callback MLflow").log_metrics(_told(record), step=record.index + 1)

    def on_end(self, run: Run | None) -> None:
        """Log how it ended."""
        if not self._open:
            return
        mlflow = _package("mlflow", "mlflow", "The callback MLflow")
        if run is not None:
            mlflow.log_metrics(_ended(run), step=run.rounds)
            mlflow.set_tags({"fedfactor.status": run.status, "fedfactor.seed": str(run.seed)})
        mlflow.end_run("FAILED" if run is None else "FINISHED")
        self._open = False


def _about(algorithm: Algorithm, meta: Meta) -> dict[str, Any]:
    settings = {name: value for name, value in settings_of(algorithm).items() if value is not None}
    return {"algorithm": type(algorithm).__name__, "owners": meta.n_clients, "features": meta.n_features, **settings}


_DATA_BASES = ("sqlite", "postgresql", "mysql", "mssql")
"""How addresses of MLflow's own data bases begin."""


def _package(name: str, extra: str, what: str) -> Any:
    if name == "mlflow":  # it reports its usage to its makers unless configured otherwise
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError.named({"mlflow": "mlflow-skinny"}.get(name, name), extra, what) from error
