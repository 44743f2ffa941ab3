"""Figures of a federation for Prometheus, in its text format: of the coordinator, and of a party."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import fedfactor
from fedfactor.federation import certificates
from fedfactor.federation.coordinator import Coordinator
from fedfactor.federation.results import RUN_STATES, client_status, run_state

__all__ = ["party_metrics", "server_metrics"]


def _metric(name: str, kind: str, about: str, values: Iterable[tuple[Mapping[str, str], float]]) -> list[str]:
    lines = [f"# HELP fedfactor_{name} {about}", f"# TYPE fedfactor_{name} {kind}"]
    for labels, value in values:
        inner = ",".join(f"{key}={json.dumps(text, ensure_ascii=False)}" for key, text in labels.items())
        lines.append(f"fedfactor_{name}{f'{{{inner}}}' if inner else ''} {float(value):.15g}")
    return lines


def _gauge(name: str, about: str, value: float) -> list[str]:
    return _metric(name, "gauge", about, [({}, value)])


def _of_the_machine(folder: Path) -> list[str]:
    disk = shutil.disk_usage(folder)
    return [
        *_metric("build_info", "gauge", "Version of fedfactor; always 1.", [({"version": fedfactor.__version__}, 1)]),
        *_gauge("disk_free_bytes", "Free bytes of the disk with the folder.", disk.free),
        *_gauge("disk_size_bytes", "Size of the disk with the folder.", disk.total),
    ]


def _progress(files: Iterable[Path]) -> list[str]:
    """Return when the last round was completed; nothing before the first message."""
    times = [file.stat().st_mtime for file in files if file.exists()]
    about = "Unix time at which the last round was completed, or the run began."
    return _gauge("last_progress_timestamp_seconds", about, max(times)) if times else []


def server_metrics(place: Coordinator) -> str:
    """Return the figures of the coordinator."""
    raw = place.status()
    there = place.presence()
    state = run_state(place)
    days = (certificates.expires(place.folder / "server.pem") - certificates.now()).total_seconds() / 86400
    error = raw.get("metrics", {}).get("relative_error")
    refusing = raw.get("refusing", ())
    rejected: dict[str, int] = {"refused": 0, **raw.get("rejected", {})}
    lines = [
        *_of_the_machine(place.folder),
        *_gauge("serving", "Whether fedfactor serve runs in the folder.", place.served),
        *_metric(
            "party_connected",
            "gauge",
            "Whether a party is connected.",
            (({"party": name}, online) for name, (online, _) in there.items()),
        ),
        *_metric(
            "party_refusing",
            "gauge",
            "Whether the run is paused because a party refuses to answer.",
            (({"party": name}, name in refusing) for name in place.terms.names),
        ),
        *_metric(
            "run_state",
            "gauge",
            "1 for the state in which the run is.",
            (({"state": name}, name == state) for name in RUN_STATES),
        ),
        *_gauge("running", "Whether a run goes on.", place.running),
        *_gauge("round", "Rounds completed in the present run.", raw.get("round", 0)),
        *_gauge("rounds", "Rounds that were agreed.", raw["rounds"]),
        *_gauge("round_duration_seconds", "Seconds that the last round took.", raw.get("seconds", 0.0)),
        *_gauge("round_deadline_seconds", "Seconds that a round waits for answers.", place.terms.policy().deadline),
        *_progress([place.folder / "checkpoint" / "run.safetensors", place.folder / "run"]),
        *_metric(
            "bytes_up_total",
            "counter",
            "Bytes that came from parties in the present run.",
            [({}, raw.get("bytes_up", 0))],
        ),
        *_metric(
            "bytes_down_total",
            "counter",
            "Bytes that went to parties in the present run.",
            [({}, raw.get("bytes_down", 0))],
        ),
        *_metric(
            "rejected_total",
            "counter",
            "Messages that were rejected in the present run, by kind.",
            (({"kind": kind}, n) for kind, n in rejected.items() if " " not in kind),
        ),
        *_gauge("certificate_days", "Days until the server's certificate ends.", days),
    ]
    if isinstance(error, float):
        lines += _gauge("relative_error", "Error of the last round.", error)
    return "\n".join(lines) + "\n"


def party_metrics(folder: Path) -> str:
    """Return the figures of a party."""
    about: dict[str, Any] = client_status(folder)
    lines = [
        *_of_the_machine(folder),
        *_gauge("connected", "Whether this party is connected.", about["connected"]),
        *_gauge("round", "Rounds answered in the last run.", about["rounds"]),
        *_progress([folder / "sent.jsonl"]),
        *_metric("sent_bytes_total", "counter", "Bytes that this party sent.", [({}, about["bytes_sent"])]),
        *_metric("sent_total", "counter", "Messages that this party sent.", [({}, about["messages"])]),
        *_metric("refused_total", "counter", "Messages that this party refused.", [({}, about["refused"])]),
    ]
    for what, number in about["remaining"].items():
        lines += _gauge(f"{what}_left", f"How many {what} the terms still allow on these rows.", number)
    for what, value in about["epsilon"].items():
        lines += _gauge(f"epsilon_{what}", f"Privacy budget of these rows: {what}.", value)
    return "\n".join(lines) + "\n"
