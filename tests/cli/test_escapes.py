"""What others wrote is shown without the codes that move a terminal's cursor or hide its lines."""

from __future__ import annotations

import json

import numpy as np
import pytest

from claims import _flower as real
from fedfactor.cli import app
from fedfactor.federation.party import Member
from fedfactor.federation.trial import Trial
from fedfactor.io.result_folder import write_factors
from fedfactor.network.client import RemoteClient
from fedfactor.network.client_storage import ClientFolder
from fedfactor.network.connection_status import CONNECTION
from fedfactor.network.message_format import Head
from fedfactor.network.server import Server
from tests.command_line import CliRunner
from tests.network.in_process import InProcessTransport

pytest.importorskip("cryptography")
EVIL = "\x1b[2J\x1b]0;title\x07 fine\x9b31m"


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def clean(text):
    return not any(code in text for code in "\x1b\x07\x9b")


@pytest.mark.slow
def test_status_of_a_federation(tmp_path):
    """Whatever the folder of a run says, be it from another machine; of the coordinator and of a party."""
    trial = Trial(tmp_path / "all", real.write_rows(tmp_path), real.terms("PooledNMF", 2))
    post = InProcessTransport({
        name: RemoteClient(Member(trial.toml, trial.root / f"{name}.key", trial.folder(name)).sign_up(file))
        for name, file in trial.files.items()
    })  # fmt: skip
    place = trial.coordinator
    place.prepare()
    Server(place.folder, trial.terms.agreement(), trial.terms.policy(), post).run()
    told = json.loads((place.folder / "status.json").read_bytes())
    hurt = {"state": EVIL, "reason": EVIL, "took_part": [EVIL], "participants": ["north", EVIL], "rejected": {EVIL: 1},
            "reasons": {"north": EVIL, EVIL: EVIL}, "answered": [EVIL], "clients": ["north", EVIL]}  # fmt: skip
    (place.folder / "status.json").write_text(json.dumps({**told, **hurt}))
    store = ClientFolder(trial.folder("north"))
    store.log(Head("refusal", "r", 9, "north", "f" * 64), b"", EVIL)
    lines = [json.loads(line) for line in (store.folder / "sent.jsonl").read_text().splitlines()]
    (store.folder / "sent.jsonl").write_text("".join(json.dumps({**line, "run": EVIL}) + "\n" for line in lines))
    (store.folder / CONNECTION).write_text(json.dumps({"error": EVIL, "time": 0.0}))
    for where in (trial.toml, store.folder):
        for more in ((), ("--json",)):
            result = call("status", where, *more)
            assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
            assert clean(result.output), where
        assert "fine" in call("status", where).output


def test_info_of_a_folder(tmp_path):
    record = {
        "algorithm": EVIL, "settings": {EVIL: EVIL}, "seed": 0, "rounds": 1, "status": EVIL, "bytes_up": 1,
        "bytes_down": 1, "relative_error": 0.5,
    }  # fmt: skip
    write_factors(tmp_path, np.eye(2), features=["a", EVIL], private={"north\x1b[1A": np.ones((3, 2))}, run=record)
    result = call("info", tmp_path)
    assert result.exit_code == 0, result.output
    assert "fine" in result.output
    assert clean(result.output)
