"""Runs in TensorBoard's files and in MLflow's folder, written by the real packages and read back."""

from __future__ import annotations

import os
import struct
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.core.algorithm import LocalFactors, Meta, Score
from fedfactor.core.errors import MissingExtraError
from fedfactor.core.run import OwnersOnly, RoundRecord, Run
from fedfactor.engines.experiment_trackers import MLflow, TensorBoard, _ended

X = np.random.default_rng(0).random((30, 6))


def points(folder: Path) -> dict[str, dict[int, float]]:
    """Read TensorBoard's files: records of a length, a checksum, an event, and a checksum."""
    event = import_module("tensorboardX.proto.event_pb2").Event
    found: dict[str, dict[int, float]] = {}
    for path in folder.glob("*tfevents*"):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            read = event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            for value in read.summary.value:
                found.setdefault(value.tag, {})[read.step] = value.simple_value
    return found


@pytest.mark.slow
def test_every_round_becomes_a_point_of_tensorboard(tmp_path):
    pytest.importorskip("tensorboardX", reason="pip install tensorboardX")
    model = fedfactor.PooledNMF(2, rounds=4, tol=0, random_state=0, callbacks=[TensorBoard(tmp_path)])
    model.fit({"a": X[:10], "b": X[10:]})
    told = points(tmp_path / "PooledNMF")
    # The two rounds of the start tell no error yet.
    seen = {record.index + 1: record.metrics for record in model.run_.history if record.metrics}
    assert told["server/relative_error"] == pytest.approx({at: each["relative_error"] for at, each in seen.items()})
    assert told["traffic/bytes_up"] == {r.index + 1: r.bytes_up for r in model.run_.history}
    assert told["owners/took_part"] == dict.fromkeys(range(1, 5), 2)
    assert told["result/relative_error"] == {4: pytest.approx(model.relative_error_)}


@pytest.mark.slow
def test_several_fits_lie_side_by_side(tmp_path):
    pytest.importorskip("tensorboardX", reason="pip install tensorboardX")
    fedfactor.PooledNMF(2, rounds=2, tol=0, n_init=3, callbacks=[TensorBoard(tmp_path, "try")]).fit(X)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["try", "try-2", "try-3"]


@pytest.mark.slow
def test_owners_own_errors_of_a_private_run_stay_out(tmp_path):
    pytest.importorskip("tensorboardX", reason="pip install tensorboardX")
    rows = np.random.default_rng(1).random((300, 6))
    noise = fedfactor.dp(1.0, unit="row", row_bound=2.0, noise="local")
    model = fedfactor.PooledNMF(2, rounds=3, privacy=noise, callbacks=[TensorBoard(tmp_path)])
    model.fit({"a": rows[:150], "b": rows[150:]})
    assert not [name for name in points(tmp_path / "PooledNMF") if "error" in name]


@pytest.mark.slow
def test_a_run_that_fails_closes_its_files(tmp_path):
    pytest.importorskip("tensorboardX", reason="pip install tensorboardX")

    def breaks(record):
        raise RuntimeError("on purpose")

    tracker = TensorBoard(tmp_path)
    with pytest.raises(RuntimeError, match="on purpose"):
        fedfactor.PooledNMF(2, rounds=2, callbacks=[tracker, breaks]).fit(X)
    assert tracker._writer is None
    assert points(tmp_path / "PooledNMF")["traffic/bytes_up"].keys() == {1}


@pytest.mark.slow
def test_mlflow_keeps_settings_and_rounds(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="pip install mlflow-skinny")
    store = f"sqlite:///{tmp_path}/mlflow.db"  # what MLflow takes by itself, in the folder of now
    mlflow.set_tracking_uri(store)
    model = fedfactor.PooledNMF(2, rounds=4, tol=0, random_state=0, callbacks=[MLflow("first try")])
    model.fit({"a": X[:10], "b": X[10:]})
    client = mlflow.tracking.MlflowClient(store)
    (kept,) = client.search_runs([each.experiment_id for each in client.search_experiments()])
    assert kept.info.run_name == "first try"
    assert kept.info.status == "FINISHED"
    assert kept.data.params["n_components"] == "2"
    assert kept.data.params["owners"] == "2"
    assert kept.data.tags["fedfactor.seed"] == "0"
    assert kept.data.metrics["result/relative_error"] == pytest.approx(model.relative_error_)
    assert [each.step for each in client.get_metric_history(kept.info.run_id, "traffic/bytes_up")] == [1, 2, 3, 4]
    assert mlflow.active_run() is None
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


@pytest.mark.parametrize(
    ("make", "package", "named"),
    [(lambda: TensorBoard("x"), "tensorboardX", "tensorboardX"), (MLflow, "mlflow", "mlflow-skinny")],
)
def test_a_package_that_is_lacking_is_named_before_the_run(monkeypatch, make, package, named):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(MissingExtraError, match=f"pip install {named} "):
        make()


@pytest.mark.parametrize("package", ["sqlalchemy", "alembic"])
@pytest.mark.parametrize("store", ["sqlite:////runs/mlflow.db", "postgresql+psycopg2://somewhere/runs"])
def test_a_data_base_without_what_it_needs_is_refused_before_the_run(monkeypatch, package, store):
    """mlflow-skinny alone cannot open the file that MLflow writes by default, and does not say what is lacking."""
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(get_tracking_uri=lambda: store))
    for name in ("sqlalchemy", "alembic"):
        monkeypatch.setitem(sys.modules, name, None if name == package else SimpleNamespace())
    with pytest.raises(
        MissingExtraError, match=rf"data base needs the package '{package}'.*pip install '\.\[mlflow\]'"
    ):
        MLflow().on_start(PooledNMF(2), META, 9, 0)


class Writer:
    """Stands in for TensorBoard's writer, which another package brings."""

    def __init__(self, place):
        self.place, self.said, self.closed = Path(place), [], False
        self.place.mkdir(parents=True)
        Writer.last = self

    def add_scalar(self, name, value, step):
        self.said.append((name, value, step))

    def add_text(self, name, text, step):
        self.said.append((name, text, step))

    def flush(self):
        pass

    def close(self):
        self.closed = True


RECORD = RoundRecord(4, ("a", "b"), 100, 20, 0.5, {"loss": 2}, ("c",))
META = Meta(5, ("a", "b", "c"))


@pytest.fixture
def finished():
    factors = {"a": LocalFactors(np.ones((1, 2)), np.ones((2, 5)))}
    scores = {"a": Score.of(1, 5, 4), "b": Score.of(0, 5, 4)}
    return Run(PooledNMF(2), 3, "converged", (RECORD,) * 6, factors, scores, None)


def test_points_of_a_round_and_of_the_end(tmp_path, monkeypatch, finished):
    monkeypatch.setitem(sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=Writer))
    board = TensorBoard(tmp_path)
    board.on_end(None)  # nothing was begun
    board.on_start(PooledNMF(2), META, 9, 3)
    writer = Writer.last
    assert writer.place == tmp_path / "PooledNMF"
    name, text, step = writer.said.pop()
    assert (name, step) == ("settings", 3)
    assert "    algorithm = PooledNMF\n    owners = 3\n    features = 5\n    n_components = 2\n" in text
    assert "row_clip" not in text  # what is not set is not told
    board.on_round(RECORD)
    assert writer.said == [
        ("server/loss", 2.0, 5), ("traffic/bytes_up", 100.0, 5), ("traffic/bytes_down", 20.0, 5),
        ("owners/took_part", 2.0, 5), ("owners/left_out", 1.0, 5),
    ]  # fmt: skip
    writer.said.clear()
    board.on_end(finished)
    assert writer.said == [
        ("result/rounds", 6.0, 6), ("result/relative_error", np.sqrt(1 / 8), 6),
        ("result/worst_owner_error", 0.5, 6), ("ended", "converged", 6),
    ]  # fmt: skip
    assert writer.closed
    for place in ("PooledNMF-2", "PooledNMF-3"):
        board.on_start(PooledNMF(2), META, 9, 0)
        assert Writer.last.place == tmp_path / place
        board.on_end(None)
        assert Writer.last.said[1:] == []
    named = TensorBoard(tmp_path, "mine")
    named.on_start(PooledNMF(2), META, 9, 0)
    assert Writer.last.place == tmp_path / "mine"


def test_what_a_private_run_publishes_of_its_end(finished):
    hidden = replace(finished, privacy={"mode": "dp"}, owners_only=OwnersOnly(finished.scores), scores={})
    assert _ended(hidden) == {"result/rounds": 6.0}
    assert set(_ended(replace(finished, privacy={"mode": "secure-sum"}))) == {"result/rounds", "result/relative_error"}


def test_a_run_of_mlflow(monkeypatch, finished):
    said, active = [], []

    class Flow(SimpleNamespace):
        def __getattr__(self, name):
            return lambda *args, **named: said.append((name, args, named))

    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    here = {"active_run": lambda: active[0] if active else None, "get_tracking_uri": lambda: "file:/runs"}
    monkeypatch.setitem(sys.modules, "mlflow", Flow(**here))
    flow = MLflow()
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    flow.on_end(None)
    assert not said
    flow.on_start(PooledNMF(2), META, 9, 0)
    assert said[0] == ("start_run", (), {"run_name": "PooledNMF", "nested": False})
    assert said[1][0] == "log_params"
    assert said[1][1][0]["owners"] == 3
    flow.on_round(RECORD)
    assert said[2][2] == {"step": 5}
    flow.on_end(finished)
    assert said[3][2] == {"step": 6}
    assert said[4] == ("set_tags", ({"fedfactor.status": "converged", "fedfactor.seed": "3"},), {})
    assert said[5] == ("end_run", ("FINISHED",), {})
    said.clear()
    flow.on_end(finished)
    assert not said
    active.append("outer")
    inner = MLflow("inner")
    inner.on_start(PooledNMF(2), META, 9, 0)
    assert said[0] == ("start_run", (), {"run_name": "inner", "nested": True})
    inner.on_end(None)
    assert said[-1] == ("end_run", ("FAILED",), {})
