"""Upgrades in mid-run, backups and restores, retention, and who did what."""

from __future__ import annotations

import os
import shutil
import tarfile
import time
from dataclasses import replace

import pytest

from fedfactor.core.errors import CheckpointError, DataError
from fedfactor.core.hash_chain import ChainError
from fedfactor.engines.checkpoint import Checkpoint
from fedfactor.federation import certificates
from fedfactor.federation.backup import back_up, restore
from fedfactor.federation.coordinator import Coordinator
from fedfactor.federation.data_deletion import SENT_DAYS, forget_old
from fedfactor.federation.party import Member
from fedfactor.network.client import RemoteClient
from fedfactor.network.client_storage import ClientFolder
from fedfactor.network.coordinator_journal import Journal
from fedfactor.network.exchange import Arrival
from fedfactor.network.server import Server
from tests.federation.test_noise_terms import federation, sign_up
from tests.network.in_process import Clock, InProcessTransport

pytestmark = pytest.mark.slow


def server(trial, where, tamper=None):
    stores = {name: ClientFolder(trial.folder(name)) for name in trial.files}
    post = InProcessTransport({name: RemoteClient(store) for name, store in stores.items()}, tamper)
    clock = Clock()
    return Server(where, trial.terms.agreement(), trial.terms.policy(), post, clock=clock, sleep=clock.sleep)


def interrupted(trial, where, rounds=1):
    """Kill a server after so many rounds."""

    def tamper(name, answer):
        if len(run.loop.snapshot.history if run.loop.snapshot else ()) == rounds:
            raise KeyboardInterrupt
        return [Arrival(name, answer)]

    run = server(trial, where, tamper)
    with pytest.raises(KeyboardInterrupt):
        run.run()


@pytest.fixture
def noisy(tmp_path):
    """A federation whose rows pay for each run."""
    trial = federation(tmp_path)
    for name in trial.files:
        sign_up(trial, name)
    return trial


def other_numpy(where):
    """Let a kept run look as if it was begun with another version of numpy."""
    kept = Checkpoint(where / "checkpoint")
    from fedfactor.engines.checkpoint import Snapshot

    snapshot = Snapshot.from_bytes(kept.file.read_bytes())
    kept.save(replace(snapshot, fingerprint={**snapshot.fingerprint, "numpy": "1.0.0"}))
    return kept


def test_a_run_survives_an_upgrade_and_what_was_paid_is_paid_once(noisy, tmp_path):
    where = tmp_path / "server"
    interrupted(noisy, where)
    paid = {name: len(ClientFolder(noisy.folder(name)).ledger.entries()) for name in noisy.files}
    assert set(paid.values()) <= {1, 2}
    kept = other_numpy(where)
    with pytest.raises(CheckpointError, match=r"its numpy was '1\.0\.0'"):
        server(noisy, where).run()
    changed = kept.accept_versions(noisy.terms.content["run"]["threads"])
    assert [*changed] == ["numpy"]
    assert server(noisy, where).run().status in ("rounds", "converged", "max_rounds")
    assert {len(ClientFolder(noisy.folder(name)).ledger.entries()) for name in noisy.files} == {3}
    assert kept.accept_versions(noisy.terms.content["run"]["threads"]) == {}


def test_only_versions_are_accepted(noisy, tmp_path):
    """Another seed, other terms or another algorithm stay refused."""
    where = tmp_path / "server"
    interrupted(noisy, where)
    from fedfactor.engines.checkpoint import Snapshot

    kept = Checkpoint(where / "checkpoint")
    snapshot = Snapshot.from_bytes(kept.file.read_bytes())
    kept.save(replace(snapshot, fingerprint={**snapshot.fingerprint, "seed": 999}))
    kept.accept_versions(1)
    with pytest.raises(CheckpointError, match="its seed was 999"):
        server(noisy, where).run()


def test_the_drill_everything_is_lost_and_restored(noisy, tmp_path):
    """Coordinator and party lose their disks; from the backups the next run begins, and nothing is forgotten."""
    place = noisy.coordinator
    place.prepare()
    place.journal.write("served")
    assert server(noisy, place.folder).run().history
    north = noisy.folder("north")
    before = ClientFolder(north).ledger.epsilon()
    back_up(noisy.toml, tmp_path / "study.tar")
    back_up(north, tmp_path / "north.tar")
    assert (tmp_path / "north.tar").stat().st_mode & 0o777 == 0o600
    with pytest.raises(DataError, match="there already"):
        restore(tmp_path / "study.tar", noisy.root)
    rows = tmp_path / "north.npy"
    shutil.copy(noisy.files["north"], rows)
    lost = {file: file.read_bytes() for file in north.rglob("*") if file.is_file() and file.suffix != ".lock"}
    shutil.rmtree(place.folder)
    shutil.rmtree(north)
    for name in ("federation.toml", "north.key", "north.key.pub", "north.key.books"):
        (noisy.root / name).unlink()
    assert restore(tmp_path / "study.tar", noisy.root) == []
    (said,) = restore(tmp_path / "north.tar", noisy.root)
    assert "as old as the backup" in said
    found = {file for file in lost if file.exists()}
    assert {file.name for file in set(lost) - found} <= {"lock", "connection.json"}
    assert all(file.read_bytes() == lost[file] for file in found)
    assert [line["deed"] for line in Coordinator(noisy.toml).journal.lines()] == ["served"]
    store = Member(noisy.toml, noisy.root / "north.key", north).sign_up(noisy.files["north"], confirmed=True)
    assert store.ledger.epsilon() == before
    assert (north.stat().st_mode & 0o777, (noisy.root / "north.key").stat().st_mode & 0o777) == (0o700, 0o600)
    assert set(Coordinator(noisy.toml).status()["clients"]) == set(noisy.files)


def test_an_older_backup_does_not_bring_a_budget_back(noisy, tmp_path):
    """The books beside the key stay, and the folder that is older than they say is refused."""
    back_up(noisy.folder("north"), tmp_path / "early.tar", noisy.root / "north.key")
    assert server(noisy, tmp_path / "server").run().history
    shutil.rmtree(noisy.folder("north"))
    for name in ("north.key", "north.key.pub"):
        (noisy.root / name).unlink()
    (said,) = restore(tmp_path / "early.tar", noisy.root)
    assert "was kept" in said
    with pytest.raises(ChainError, match=r"north\.key\.books remembers"):
        sign_up(noisy)


def test_a_damaged_or_hostile_archive_is_refused(noisy, tmp_path):
    archive = tmp_path / "north.tar"
    back_up(noisy.folder("north"), archive, noisy.root / "north.key")
    whole = bytearray(archive.read_bytes())
    whole[len(whole) // 2] ^= 1
    (tmp_path / "bad.tar").write_bytes(whole)
    with pytest.raises(DataError):
        restore(tmp_path / "bad.tar", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    import hashlib
    import io
    import json

    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        about = {"kind": "party", "time": "", "sha256": {"../evil": hashlib.sha256(b"x").hexdigest()}}
        for name, data in (("backup.json", json.dumps(about).encode()), ("../evil", b"x")):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    with pytest.raises(DataError, match="outside its folder"):
        restore(tmp_path / "evil.tar", tmp_path / "new")
    assert not (tmp_path / "evil").exists()


def test_sent_bytes_of_an_unfinished_run_are_never_deleted(noisy, tmp_path):
    where = tmp_path / "server"
    interrupted(noisy, where)
    store = ClientFolder(noisy.folder("north"))
    late = time.time() + 10 * SENT_DAYS * 86400
    assert list((store.folder / "sent").iterdir())
    assert forget_old(store.folder, 0, now=late) == []
    assert forget_old(store.folder, 30, now=late) == []
    server(noisy, where).run()
    assert forget_old(store.folder, 0, now=time.time() + (SENT_DAYS - 1) * 86400) == []
    assert forget_old(store.folder, 0, keep_sent=0, now=late) == []
    listed = len(store.sent())
    assert forget_old(store.folder, 0, now=late)
    assert not list((store.folder / "sent").iterdir())
    assert len(store.sent()) == listed
    assert (store.folder / "result").exists()  # results stay, unless the terms say otherwise


def test_the_authority_may_be_offline(tmp_path):
    certificates.make_authority(tmp_path / "server", "study")
    drive = tmp_path / "drive"
    drive.mkdir()
    os.rename(tmp_path / "server" / "ca.key", drive / "ca.key")
    with pytest.raises(DataError, match="--ca-key"):
        certificates.make_server_certificate(tmp_path / "server", ["127.0.0.1"])
    made = certificates.make_server_certificate(tmp_path / "server", ["127.0.0.1"], ca_key=drive / "ca.key")
    assert certificates.names_host(made, "127.0.0.1")


def test_journal_entries_carry_a_person(tmp_path, monkeypatch):
    for name in ("FEDFACTOR_OPERATOR", "SUDO_USER"):
        monkeypatch.delenv(name, raising=False)
    journal = Journal(tmp_path)
    journal.write("served")
    monkeypatch.setenv("SUDO_USER", "jane")
    journal.write("started")
    monkeypatch.setenv("FEDFACTOR_OPERATOR", "Jane Doe, IT")
    journal.write("stopped")
    assert [line.get("operator") for line in journal.lines()] == [None, "jane", "Jane Doe, IT"]
