"""The same rows get their budget once: whatever becomes of the party's folder, beside the key it is remembered."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest

from fedfactor.core.hash_chain import ChainError
from fedfactor.core.rollback_detection import Witness, WitnessError
from fedfactor.federation.party import Member
from fedfactor.network.client import RemoteClient
from fedfactor.network.client_storage import ClientFolder
from fedfactor.network.exchange import NotEnough
from fedfactor.network.server import Server
from fedfactor.privacy.accounting import epsilon_of
from tests.federation.test_noise_terms import federation, sign_up
from tests.network.in_process import Clock, InProcessTransport

pytestmark = pytest.mark.slow


def run(trial, where, folders=None):
    """Run once with the parties' real folders; return the state of the ledgers."""
    members = {
        name: Member(trial.toml, trial.root / f"{name}.key", (folders or {}).get(name, trial.folder(name)))
        for name in trial.files
    }
    stores = {name: member.sign_up(trial.files[name], confirmed=True) for name, member in members.items()}
    post, clock = InProcessTransport({name: RemoteClient(store) for name, store in stores.items()}), Clock()
    agreement, policy = trial.terms.agreement(), trial.terms.policy()
    Server(where, agreement, policy, post, clock=clock, sleep=clock.sleep).run()
    return {name: store.ledger and len(store.ledger.entries()) for name, store in stores.items()}


@pytest.fixture
def spent(tmp_path):
    """A federation whose rows have cost their whole budget."""
    trial = federation(tmp_path)
    for name in trial.files:
        sign_up(trial, name)
    shutil.copytree(trial.folder("north"), tmp_path / "early")
    assert set(run(trial, tmp_path / "first").values()) == {3}
    return trial


def test_a_second_run_in_the_same_folders_is_refused(spent, tmp_path):
    with pytest.raises(NotEnough):
        run(spent, tmp_path / "second")


def test_a_run_that_cannot_be_paid_to_its_end_costs_nothing(tmp_path):
    """The terms fix the rounds and the noise: whether the whole run fits the budget is known before its first round."""
    trial = federation(tmp_path)
    for name in trial.files:
        sign_up(trial, name, budget=1.3)  # enough for one run (ε = 1), and for a part of a second one
    assert set(run(trial, tmp_path / "first").values()) == {3}
    before = {name: ClientFolder(trial.folder(name)).ledger.epsilon() for name in trial.files}
    counted = {name: ClientFolder(trial.folder(name)).left() for name in trial.files}
    with pytest.raises(NotEnough, match="north: the party does not answer this"):
        run(trial, tmp_path / "second")
    for name in trial.files:
        store = ClientFolder(trial.folder(name))
        assert len(store.ledger.entries()) == 3
        assert store.ledger.epsilon() == before[name]
        assert store.left() == counted[name]
        assert "whole run" in store.sent()[-1]["reason"]


def test_a_budget_for_two_runs_pays_two(tmp_path):
    trial = federation(tmp_path)
    store = sign_up(trial, budget=1.3)
    entry = replace(store.agreement.channel().books.entry, run="other")
    whole = [replace(entry, round=index) for index in range(3)]
    twice = [replace(each, run="another") for each in whole]
    assert store.ledger.affords(*whole)
    assert not store.ledger.affords(*whole, *twice)
    cost = epsilon_of([each.release for each in (*whole, *twice)], store.ledger.delta, "rdp")
    for name in trial.files:
        sign_up(trial, name, budget=cost, raise_budget=True)
    assert store.ledger.affords(*whole, *twice)
    assert set(run(trial, tmp_path / "first").values()) == {3}
    assert set(run(trial, tmp_path / "second").values()) == {6}


def test_a_deleted_folder_is_no_new_budget(spent):
    shutil.rmtree(spent.folder("north"))
    with pytest.raises(ChainError, match=r"north\.key\.books remembers"):
        sign_up(spent)


def test_a_folder_put_back_from_before_the_run_is_no_new_budget(spent, tmp_path):
    shutil.rmtree(spent.folder("north"))
    shutil.copytree(tmp_path / "early", spent.folder("north"))
    with pytest.raises(ChainError, match=r"north\.key\.books remembers"):
        sign_up(spent)


def test_books_alone_put_back_are_no_new_budget(spent, tmp_path):
    for file in (tmp_path / "early").glob("ledger.jsonl*"):
        shutil.copyfile(file, spent.folder("north") / file.name)
    with pytest.raises(ChainError, match=r"north\.key\.books remembers"):
        sign_up(spent)


@pytest.mark.parametrize("copied", [False, True])
def test_another_folder_is_no_new_budget(spent, tmp_path, copied):
    """Neither an empty one nor a copy: of both, the rows were answered for elsewhere."""
    if copied:
        shutil.copytree(spent.folder("north"), tmp_path / "other")
    member = Member(spent.toml, spent.root / "north.key", tmp_path / "other")
    with pytest.raises(WitnessError, match="what was spent would be forgotten"):
        member.sign_up(spent.files["north"], confirmed=True)


@pytest.mark.parametrize("which", [slice(None, None, -1), slice(1, None), slice(4, None)])
def test_the_same_rows_in_another_order_or_without_one_of_them_are_no_new_budget(spent, tmp_path, which):
    kept = np.load(spent.files["north"])
    np.savez(tmp_path / "again.npz", X=kept["X"][which], features=kept["features"])
    member = Member(spent.toml, spent.root / "north.key", tmp_path / "other")
    with pytest.raises(WitnessError, match="these rows, or most of them, have been answered for"):
        member.sign_up(tmp_path / "again.npz", confirmed=True)


def test_other_rows_have_a_budget_of_their_own(spent, tmp_path):
    kept = np.load(spent.files["north"])
    np.savez(tmp_path / "new.npz", X=kept["X"] * 0.9, features=kept["features"])
    store = Member(spent.toml, spent.root / "north.key", tmp_path / "other").sign_up(
        tmp_path / "new.npz", confirmed=True
    )
    assert store.ledger.entries() == []


def test_other_books_are_no_new_budget(spent, tmp_path):
    with pytest.raises(WitnessError, match="what was spent would be forgotten"):
        sign_up(spent, ledger=tmp_path / "new.jsonl")


def test_a_folder_that_was_moved_goes_on(spent, tmp_path):
    spent.folder("north").rename(tmp_path / "moved")
    member = Member(spent.toml, spent.root / "north.key", tmp_path / "moved")
    store = member.sign_up(spent.files["north"], confirmed=True)
    assert len(store.ledger.entries()) == 3
    assert store.ledger.epsilon() > 0.99


def test_runs_are_remembered_too_where_there_is_no_noise(tmp_path):
    trial = federation(tmp_path, privacy={"minimum_rows": 5}, limits={"runs": 1})
    run(trial, tmp_path / "first")
    shutil.rmtree(trial.folder("north"))
    with pytest.raises(ChainError, match=r"asked\.jsonl"):
        sign_up(trial)


def test_who_decides_to_forget_can(spent):
    shutil.rmtree(spent.folder("north"))
    (spent.root / "north.key.books").unlink()
    assert sign_up(spent).ledger.entries() == []


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": {"lines": "many", "digest": ""}}', "[" * 100_000])
def test_a_damaged_memory_is_told(tmp_path, text):
    (tmp_path / "a.books").write_text(text)
    with pytest.raises(WitnessError, match="is damaged"):
        Witness(tmp_path / "a.books").of(tmp_path / "ledger.jsonl")


def test_where_nothing_can_be_written_beside_the_key_the_party_is_told(tmp_path, monkeypatch):
    trial = federation(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedfactor.core.rollback_detection.alone_with", full)
    with pytest.warns(UserWarning, match="nothing remembers what its rows have cost"):
        store = sign_up(trial)
    assert store.witness is None
