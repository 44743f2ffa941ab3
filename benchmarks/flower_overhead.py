"""Seconds per round over Flower, beside Flower's own minimal app with the same payload.

Run it with ``python -m benchmarks.flower_overhead``.

Three nodes each, on this machine, one after the other in one run, twice. Flower's app echoes an array through
``send_and_receive`` without TLS; ours runs PooledNMF with TLS, keys, checks, a checkpoint a round and a log of all that
is sent.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from claims import _flower as real
from fedfactor.federation import processes as children
from fedfactor.federation.coordinator import APP
from fedfactor.federation.trial import Trial

SKIPPED = 2
"""Rounds at the start that do not count: processes start in them, and PooledNMF's first uploads are wider."""

OUT = Path(__file__).parent / "out" / "flower_overhead.json"

ECHO = """
import json, os, time
import numpy as np
from flwr.app import ArrayRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

server = ServerApp()
client = ClientApp()

@server.main()
def main(grid, context):
    while len(list(grid.get_node_ids())) < 3:
        time.sleep(0.5)
    seconds = []
    for _ in range(int(os.environ["BENCH_ROUNDS"])):
        began = time.perf_counter()
        content = RecordDict({"a": ArrayRecord([np.zeros(int(os.environ["BENCH_SIZE"]))])})
        nodes = list(grid.get_node_ids())
        replies = list(grid.send_and_receive([Message(content, node, MessageType.QUERY) for node in nodes]))
        assert len(replies) == 3 and not any(reply.has_error() for reply in replies)
        seconds.append(time.perf_counter() - began)
        with open(os.environ["BENCH_OUT"], "w") as file:
            json.dump(seconds, file)

@client.query()
def query(message, context):
    return Message(message.content, reply_to=message)
"""


def plain(rounds: int, size: int, patience: float) -> list[float]:
    """Time Flower's own minimal app."""
    here = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        app, out, port = folder / "app", folder / "seconds.json", children.free_port()
        app.mkdir()
        (app / "pyproject.toml").write_text(APP["pyproject.toml"])
        (app / "fedfactor_run.py").write_text(ECHO)
        home = folder / "home"
        home.mkdir()
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
        )
        extra = {"FLWR_HOME": str(home), "BENCH_ROUNDS": str(rounds), "BENCH_SIZE": str(size), "BENCH_OUT": str(out)}
        link = [str(here / "flower-superlink"), "--insecure", "--port", str(port)]
        running = [children.start([*link, "--disable-runtime-dependency-installation"], folder / "link.log", extra)]
        try:
            _listening(port, patience)
            for _ in range(3):
                node = [str(here / "flower-supernode"), "--insecure", "--superlink", f"127.0.0.1:{port}"]
                log = folder / "node.log"
                running.append(children.start([*node, "--port", str(children.free_port())], log, extra))
            environment = children.quiet_environment(extra)
            command = [str(here / "flwr"), "run", str(app), "here"]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"flwr run: {done.stdout}{done.stderr}")
            return _await(out, rounds, patience)
        finally:
            for child in reversed(running):
                children.end(child)


def _listening(port: int, patience: float) -> None:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError("Flower's SuperLink did not start.")


def _await(out: Path, rounds: int, patience: float) -> list[float]:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if out.exists() and len(seconds := json.loads(out.read_text() or "[]")) >= rounds:
            return seconds
        time.sleep(0.5)
    raise TimeoutError("Flower's minimal app did not finish.")


def ours(rounds: int, columns: int, patience: float) -> list[float]:
    """Time PooledNMF with everything on."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = real.write_rows(folder, columns=columns)
        trial = Trial(folder / "all", files, real.terms("PooledNMF", rounds, tol=0.0))
        with trial:
            for party in files:
                trial.join(party)
            trial.coordinator.start()
            ended = trial.coordinator.wait(patience)
            if ended["state"] != "finished":
                raise RuntimeError(str(ended))
        past = real.history(trial)
        print("bytes up of one party:", [entry["bytes_up"] // 3 for entry in past], flush=True)
        return [entry["seconds"] for entry in past]


def main() -> None:
    """Measure all, interleaved; rounds in which processes start and the wide start is made do not count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--columns", type=int, default=2000)
    options = parser.parse_args()
    size = 3 * (3 + options.columns)  # float64 numbers in one upload of rank 3
    arms = {
        "Flower's minimal app": lambda: plain(options.rounds, size, 600),
        "ours": lambda: ours(options.rounds, options.columns, 600),
    }
    found: dict[str, Any] = {"load": [os.getloadavg()[0]], "bytes": 8 * size, **{name: [] for name in arms}}
    for _ in range(options.repeats):
        for name, measure in arms.items():
            found[name] += measure()[SKIPPED:]
            print(name, [round(x, 2) for x in found[name]], flush=True)
        found["load"].append(os.getloadavg()[0])
    for name in arms:
        rounds = found[name]
        middle = statistics.median(rounds)
        print(f"{name:20} median {middle:.2f} s, {min(rounds):.2f} to {max(rounds):.2f}, n = {len(rounds)}")
    print(f"payload {found['bytes']} bytes each way, load {', '.join(f'{x:.1f}' for x in found['load'])}")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
