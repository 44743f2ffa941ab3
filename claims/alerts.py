"""Every alert of ``deploy/prometheus/alert-rules.yml`` fires in a real Prometheus, from what it is meant to notice.

Prometheus scrapes the pages of a real coordinator and of three real parties. The waiting times of the rules (``for:``)
are one second here, and it evaluates each second; expressions and thresholds are those of the file. A party's folder
lies on a file system of 26 MB of its own, which takes the right to mount one.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from claims import _flower as real
from fedfactor.federation import certificates
from fedfactor.federation.processes import end, free_port
from fedfactor.federation.trial import Trial

RULES = Path(__file__).resolve().parents[1] / "deploy" / "prometheus" / "alert-rules.yml"
PATIENCE = 180.0
NOISE = {"protect": "dp", "epsilon": 1.0, "row_bound": 5.0, "rows": 135.0, "minimum_rows": 5, "report_error": False}


class Watched:
    """A Prometheus that scrapes these ports."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        rules = re.sub(r"for: \d+m", "for: 1s", RULES.read_text()).replace("[10m]", "[30s]")
        (folder / "rules.yml").write_text(rules)
        targets = ", ".join(f"'127.0.0.1:{port}'" for port in ports)
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\n"
            f"scrape_configs: [{{job_name: fedfactor, static_configs: [{{targets: [{targets}]}}]}}]\n"
        )
        self.port = free_port()
        command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
        command += [f"--web.listen-address=127.0.0.1:{self.port}"]
        with (folder / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def firing(self) -> set[str]:
        """Return the alerts that fire now."""
        address = f"http://127.0.0.1:{self.port}/api/v1/alerts"
        try:
            with urllib.request.urlopen(address, timeout=10) as reply:
                alerts: list[dict[str, Any]] = json.load(reply)["data"]["alerts"]
        except OSError:
            return set()
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def until(self, name: str) -> float:
        """Wait until an alert fires; return the seconds it took."""
        began = time.monotonic()
        while f"Fedfactor{name}" not in (now := self.firing()):
            if time.monotonic() - began > PATIENCE:
                raise TimeoutError(f"{name} did not fire; firing: {sorted(now)}")
            time.sleep(0.5)
        return round(time.monotonic() - began, 1)


def scene(folder: Path, trial: Trial, ports: list[int], watched: Watched) -> dict[str, float]:
    """Let happen what the alerts are about, one after the other."""
    fired: dict[str, float] = {}
    place = trial.coordinator
    fired["CertificateEnds"] = watched.until("CertificateEnds")
    place.start()  # nobody is there
    fired["PartyUnavailable"] = watched.until("PartyUnavailable")
    fired["RunStalled"] = watched.until("RunStalled")
    disk = trial.folder("west")
    for name, port in zip(real.PARTIES, ports[1:], strict=True):
        trial.join(name, "--page", str(port), "--budget", "1.05")
    while place.wait(PATIENCE)["state"] != "finished":  # a busy machine may miss a deadline
        place.start()
    fired["BudgetNearlySpent"] = watched.until("BudgetNearlySpent")
    before = watched.firing()
    place.start(again=True)  # no party can pay for it
    fired["Refusals"] = watched.until("Refusals")
    fired["RunStopped"] = watched.until("RunStopped")
    assert not {"FedfactorRefusals", "FedfactorRunStopped", "FedfactorDiskNearlyFull"} & before, before
    (disk / "ballast").write_bytes(bytes(24 << 20))  # 92 % of it
    fired["DiskNearlyFull"] = watched.until("DiskNearlyFull")
    before = watched.firing()
    assert "FedfactorNotServing" not in before, before
    trial.end_server()
    fired["NotServing"] = watched.until("NotServing")
    return fired


def claim() -> dict:
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        changes = {**real.terms("PooledNMF", 3, {"deadline": 15, "gather": 300}), "privacy": NOISE}
        trial = Trial(folder / "all", real.write_rows(folder), changes)
        certificates.make_server_certificate(trial.coordinator.folder, ["127.0.0.1"], days=20)
        trial.folder("west").mkdir(mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=26m", "tmpfs", trial.folder("west")], check=True)
        ports = [free_port() for _ in range(4)]
        watched = Watched(folder, ports)
        try:
            trial.serve("--page", str(ports[0]))
            fired = scene(folder, trial, ports, watched)
        finally:
            trial.__exit__(None, None, None)
            end(watched.process)
            subprocess.run(["umount", trial.folder("west")], check=True)
    rules = set(re.findall(r"alert: Fedfactor(\w+)", RULES.read_text()))
    return {"seconds_until_firing": fired, "rules": len(rules), "holds": set(fired) == rules}
