"""The files for services and containers: read by the tools that will read them, and looked at where these are not."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedfactor.cli import app
from fedfactor.cli.console import ATTENTION, DECISION, RETRY
from fedfactor.federation.terms import Terms
from tests.command_line import CliRunner

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))


def knows(words):
    """Tell whether the command line has this command, and all of these options."""
    said = CliRunner().invoke(app, [words[0], "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert said.exit_code == 0, words
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said.output)
    return [word for word in words[1:] if word.startswith("--") and word not in plain]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_start_commands_that_exist_as_nobody_special(unit):
    read = configparser.ConfigParser(strict=False, interpolation=None)
    read.optionxform = str
    read.read(unit)
    service = read["Service"]
    command = shlex.split(service["ExecStart"])
    assert Path(command[0]).name == "fedfactor"
    assert knows(command[1:]) == []
    assert service["User"] == "fedfactor"
    assert service["ReadWritePaths"] == service["WorkingDirectory"]
    assert service["NoNewPrivileges"] == "yes"
    never_again = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert service["Restart"] == "on-failure"
    assert never_again == {1, DECISION, ATTENTION}
    assert RETRY not in never_again
    if shutil.which("systemd-analyze"):
        done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
        odd = [line for line in done.stderr.splitlines() if unit.name in line and "not executable" not in line]
        assert odd == []  # that the program is not installed here is no fault of the unit


def test_the_image_is_made_of_what_is_there_and_runs_as_nobody_special():
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]
    assert lines[0][0] == "FROM"
    assert ":" in lines[0][1]
    assert not lines[0][1].endswith(":latest")
    for word, rest in lines:
        assert word in {"FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
        if word == "COPY":
            assert all((ROOT / source).exists() for source in rest.split()[:-1]), rest
    assert [rest for word, rest in lines if word == "USER"] == ["fedfactor"]


@pytest.mark.slow
def test_compose_describes_a_trial_of_three():
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(services) == {"prepare", "coordinator", "north", "south", "west"}
    for name, service in services.items():
        if name != "prepare":
            assert knows(service["command"]) == []
            assert service["depends_on"]["prepare"]["condition"] == "service_completed_successfully"
        assert service["cap_drop"] == ["ALL"]
        assert "ports" not in service  # nothing of a trial is for other machines
    if shutil.which("docker"):
        command = ["docker", "compose", "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "is not a docker command" not in done.stderr and "unknown shorthand" not in done.stderr:
            assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.integration
def test_what_the_trial_prepares_is_a_federation(tmp_path):
    pytest.importorskip("cryptography")
    here = tmp_path / "bin"
    here.mkdir()
    for name, more in (("fedfactor", "-m fedfactor "), ("python", "")):
        (here / name).write_text(f'#!/bin/sh\nexec {sys.executable} {more}"$@"\n')
        (here / name).chmod(0o755)
    path = os.pathsep.join([str(here), os.environ["PATH"]])
    python = os.pathsep.join(os.path.abspath(entry or ".") for entry in sys.path)
    command = ["sh", str(DEPLOY / "trial.sh"), str(tmp_path), "coordinator:8000"]
    for _ in range(2):  # the second time it finds everything there
        env = {**os.environ, "PATH": path, "PYTHONPATH": python}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
    terms = Terms.read(tmp_path / "study" / "federation.toml")
    assert terms.names == ("north", "south", "west")
    assert terms.address == ("coordinator", 8000)
    assert len(terms.agreement().meta.clients) == 3
