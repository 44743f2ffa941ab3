"""Folders from somebody else: whatever their files hold, looking into them ends in a plain sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest

from claims import _flower as real
from claims.readers_survive import mutant
from fedfactor.cli import app
from fedfactor.federation.party import Member
from fedfactor.federation.trial import Trial
from fedfactor.network.client import RemoteClient
from fedfactor.network.server import Server
from tests.command_line import CliRunner
from tests.network.in_process import InProcessTransport

pytest.importorskip("cryptography")
WORDS = (None, -1, 1e308, "x", [], {}, True, 10**30, "../../x", "\x1b[2Jy")
READ = (".json", ".jsonl", ".safetensors", ".head", ".path")


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    root = tmp_path_factory.mktemp("trial")
    made = Trial(root / "all", real.write_rows(root), real.terms("PooledNMF", 2))
    place = made.coordinator
    place.prepare()
    members = {name: Member(made.toml, made.root / f"{name}.key", made.folder(name)) for name in made.files}
    post = InProcessTransport({name: RemoteClient(each.sign_up(made.files[name])) for name, each in members.items()})
    Server(place.folder, made.terms.agreement(), made.terms.policy(), post).run()
    return made


def other_kinds(data, rng):
    """Leave entries out of a JSON file, and put values of other kinds into it."""
    if isinstance(data, dict):
        return {name: other_kinds(part, rng) for name, part in data.items() if rng.random() > 0.05}
    if isinstance(data, list):
        return [other_kinds(part, rng) for part in data[: None if rng.random() < 0.9 else 1]]
    return data if rng.random() < 0.9 else WORDS[int(rng.integers(len(WORDS)))]


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["north", "server"])
def test_a_folder_of_somebody_else_ends_in_a_sentence(trial, tmp_path, whose):
    folder = trial.folder("north") if whose == "north" else trial.coordinator.folder
    files = [path for path in sorted(folder.rglob("*")) if path.suffix in READ and "flower" not in path.parts]
    assert len(files) >= 8
    for path in files:
        sound = path.read_bytes()
        for number in range(6):
            rng = np.random.default_rng([number, len(sound)])
            kinds = path.suffix == ".json" and path.parent.name != "data" and number % 2 == 0  # that one has a checksum
            path.write_bytes(json.dumps(other_kinds(json.loads(sound), rng)).encode() if kinds else mutant(sound, rng))
            looks = [("status", folder), ("results", folder, "-o", tmp_path / "out")]
            if whose == "server" and path.name == "run.json":
                looks += [("federation", look, trial.toml) for look in ("versions", "check")]
            for words in looks:
                result = call(*words)
                odd = result.exception
                assert odd is None or isinstance(odd, SystemExit), (path.name, number, words[0], repr(odd))
                assert "\x1b" not in result.output
        path.write_bytes(sound)
    assert not list(tmp_path.parent.glob("x"))
