"""Figures for Prometheus, the alerts on them, and the endpoints that say whether a process works."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")

import fedfactor
from fedfactor.cli.live_page import party_pages, serve_pages, server_pages
from fedfactor.cli.prometheus_metrics import party_metrics, server_metrics
from fedfactor.core.atomic_files import write_atomic
from fedfactor.federation.coordinator import PRESENCE, READY
from fedfactor.network.client import RemoteClient
from fedfactor.network.connection_status import CONNECTION
from fedfactor.network.server import Server
from tests.federation.test_noise_terms import federation, sign_up
from tests.network.in_process import InProcessTransport

RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
SAMPLE = re.compile(r'fedfactor_(\w+)(\{(?:\w+="[^"\n]*",?)+\})? (\S+)')


def samples(text):
    """Read Prometheus's text format; every line is a comment or a sample, and each name is explained before."""
    found, explained = {}, set()
    for line in text.splitlines():
        if line.startswith("#"):
            explained.add(line.split()[2].removeprefix("fedfactor_"))
            continue
        read = SAMPLE.fullmatch(line)
        assert read, line
        assert read[1] in explained
        found[read[1] + (read[2] or "")] = float(read[3])
    return found


@pytest.fixture
def ran(tmp_path):
    """A federation with noise after a run of three rounds, and a budget for little more."""
    trial = federation(tmp_path, limits={"runs": 5})
    stores = {name: sign_up(trial, name, budget=1.05) for name in trial.files}
    place = trial.coordinator
    place.prepare()
    post = InProcessTransport({name: RemoteClient(store) for name, store in stores.items()})
    Server(place.folder, trial.terms.agreement(), trial.terms.policy(), post).run()
    return trial, place


def test_the_figures_of_a_run_are_those_of_its_files(ran):
    trial, place = ran
    seen = {"north": [True, "2030-01-01 10:00:00 UTC"], "south": [False, ""]}
    place._alone()
    write_atomic(place.folder / PRESENCE, json.dumps(seen).encode())
    there, raw = samples(server_metrics(place)), place.status()
    assert there[f'build_info{{version="{fedfactor.__version__}"}}'] == 1
    states = {name: value for name, value in there.items() if name.startswith("run_state")}
    assert states.pop('run_state{state="finished"}') == 1
    assert len(states) == 6
    assert set(states.values()) == {0}
    assert (there["serving"], there["running"], there["round"], there["rounds"]) == (1, 0, 3, 3)
    assert there["round_duration_seconds"] == pytest.approx(raw["seconds"])
    assert there["round_deadline_seconds"] == trial.terms.policy().deadline
    assert there["bytes_up_total"] == raw["bytes_up"] > 0
    assert abs(time.time() - there["last_progress_timestamp_seconds"]) < 300
    assert 390 < there["certificate_days"] < 400
    disk = shutil.disk_usage(place.folder)
    assert there["disk_size_bytes"] == disk.total
    assert there["disk_free_bytes"] == pytest.approx(disk.free, rel=0.2)
    assert there['rejected_total{kind="refused"}'] == 0
    assert (there['party_connected{party="north"}'], there['party_connected{party="south"}']) == (1, 0)
    write_atomic(place.folder / "status.json", json.dumps({**raw, "state": "paused", "refusing": ["west"]}).encode())
    there = samples(server_metrics(place))
    assert there['run_state{state="paused"}'] == there['party_refusing{party="west"}'] == 1
    assert there['party_refusing{party="north"}'] == 0
    place.close()


def test_the_figures_of_a_party_hold_its_budget_and_its_limits(ran):
    trial, _ = ran
    here = samples(party_metrics(trial.folder("north")))
    assert here["epsilon_spent"] == pytest.approx(1.0, rel=1e-3)
    assert here["epsilon_budget"] == 1.05
    assert here["epsilon_left"] == pytest.approx(0.05, abs=2e-3)
    assert here["runs_left"] == 4
    assert (here["connected"], here["round"], here["refused_total"]) == (0, 3, 0)
    assert here["sent_bytes_total"] > 0


def test_alerts_are_on_figures_that_exist_and_each_is_tested(ran):
    trial, place = ran
    place._alone()
    write_atomic(place.folder / PRESENCE, json.dumps({"north": [True, ""]}).encode())
    exported = {name.partition("{")[0] for name in samples(server_metrics(place))}
    place.close()
    exported |= {name.partition("{")[0] for name in samples(party_metrics(trial.folder("north")))}
    rules, tested = ((RULES / f"alert-{kind}.yml").read_text() for kind in ("rules", "rules.test"))
    expressions = re.findall(r"expr: (.*?)\n +(?:for|labels):", rules, re.DOTALL)
    alerts = re.findall(r"alert: (\w+)", rules)
    assert len(expressions) == len(alerts) == 8
    used = set(re.findall(r"fedfactor_(\w+)", " ".join(expressions)))
    assert used <= exported
    assert set(re.findall(r'alertname="(\w+)"', tested)) == set(alerts)
    if promtool := shutil.which("promtool"):
        for kind, file in (("check", "alert-rules.yml"), ("test", "alert-rules.test.yml")):
            command = [promtool, kind, "rules", file]
            done = subprocess.run(command, cwd=RULES, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done.stdout + done.stderr


def answer(where, name):
    try:
        with urllib.request.urlopen(where + name, timeout=30) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_health_and_readiness_of_the_coordinator(ran):
    _, place = ran
    served, where = serve_pages(server_pages(place), "127.0.0.1", 0, place.folder)
    try:
        assert [answer(where, name)[0] for name in ("healthz", "readyz")] == [503, 503]
        place._alone()  # it holds the folder, and parties cannot connect yet
        assert [answer(where, name)[0] for name in ("healthz", "readyz")] == [200, 503]
        write_atomic(place.folder / READY, b"{}")
        assert [answer(where, name) for name in ("healthz", "readyz")] == [(200, "ok\n"), (200, "ok\n")]
        place.close()
        assert [answer(where, name)[0] for name in ("healthz", "readyz")] == [503, 503]
    finally:
        served.shutdown()


def test_health_and_readiness_of_a_party(ran):
    trial, _ = ran
    folder = trial.folder("north")
    served, where = serve_pages(party_pages(folder), "127.0.0.1", 0, folder)
    try:
        assert [answer(where, name)[0] for name in ("healthz", "readyz")] == [200, 503]
        now = time.time()
        about = {"connected": True, "time": now, "since": now, "error": "", "status": 200}
        (folder / CONNECTION).write_text(json.dumps(about))
        assert answer(where, "readyz")[0] == 503  # no fedfactor join runs here
        from fedfactor.federation.party import Member

        with Member(trial.toml, trial.root / "north.key", folder)._alone():
            assert answer(where, "readyz") == (200, "ok\n")
    finally:
        served.shutdown()


def test_every_figure_of_the_dashboard_exists(ran):
    trial, place = ran
    known = {line.split()[2] for text in (server_metrics(place), party_metrics(trial.folder("north")))
             for line in text.splitlines() if line.startswith("# HELP")} | {"fedfactor_relative_error",
             "fedfactor_rounds_left"}  # fmt: skip
    panels = json.loads((RULES / "grafana-dashboard.json").read_text())["panels"]
    used = {
        name for panel in panels for target in panel["targets"] for name in re.findall(r"fedfactor_\w+", target["expr"])
    }
    assert used <= known
    assert known - used <= {"fedfactor_build_info", "fedfactor_serving", "fedfactor_running", "fedfactor_sent_total",
                            "fedfactor_epsilon_left"}  # fmt: skip
