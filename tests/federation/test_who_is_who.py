"""A coordinator that hands out keys of its own, and what stops it."""

from __future__ import annotations

import copy
import re
from datetime import datetime, timedelta

import numpy as np
import pytest

from claims import _flower as real
from fedfactor.cli import app
from fedfactor.core.errors import DataError
from fedfactor.core.flattened_upload import flatten
from fedfactor.core.wire import from_bytes
from fedfactor.federation import keys, setup, terms_writer
from fedfactor.federation.fingerprint_words import WORDS, key_words, same_words, terms_words
from fedfactor.federation.party import Member
from fedfactor.federation.terms import Terms, TermsError
from fedfactor.federation.trial import Trial
from fedfactor.federation.vouching import read_public, strangers, vouch, vouchers
from fedfactor.network.client import RemoteClient
from fedfactor.network.server import Server
from tests.command_line import CliRunner
from tests.network.in_process import InProcessTransport

pytest.importorskip("cryptography")
run = CliRunner().invoke
SECURE = {"protect": "secure-sum", "minimum_rows": 5, "allow": ["small-client"], "column_rows": 0}


@pytest.fixture
def trial(tmp_path):
    changes = real.terms("PooledNMF", 2, tol=0.0, start="random")
    changes["privacy"] = SECURE
    return Trial(tmp_path / "all", real.write_rows(tmp_path), changes)


def member(trial, name="north", toml=None):
    return Member(toml or trial.toml, trial.root / f"{name}.key", trial.folder(name))


def false_registry(trial, tmp_path):
    """Write the file that north is sent: keys of the coordinator stand where those of south and west should."""
    content = copy.deepcopy(dict(trial.terms.content))
    for name in ("south", "west"):
        keys.make_key(tmp_path / f"eve {name}.key", name)
        content["parties"][name] = read_public(tmp_path / f"eve {name}.key.pub")
    terms_writer.save(tmp_path / "north.toml", content)
    return tmp_path / "north.toml"


def mount(trial, tmp_path, **confirmed):
    """Let the coordinator play south and west with rows that it knows; return the sums, and north's uploads."""
    toml = false_registry(trial, tmp_path)
    zero = np.load(trial.files["south"])
    np.savez(tmp_path / "zero.npz", X=np.full_like(zero["X"], 1e-12), features=zero["features"])
    stores = {"north": member(trial, toml=toml).sign_up(trial.files["north"], **confirmed)}
    for name in ("south", "west"):
        eve = Member(toml, tmp_path / f"eve {name}.key", tmp_path / f"eve {name}")
        stores[name] = eve.sign_up(tmp_path / "zero.npz", confirmed=True)
    sums, mine = {}, {}
    post = InProcessTransport({name: RemoteClient(store) for name, store in stores.items()})
    server = Server(tmp_path / "eve", Terms.read(toml).agreement(), Terms.read(toml).policy(), post)
    kind = type(server.algorithm)
    server_step, client_step = kind.server_step, kind.client_step

    def summed(self, state, up, at):
        sums[at.index] = up
        return server_step(self, state, up, at)

    def sent(self, shard, state, down, at):
        state, up = client_step(self, shard, state, down, at)
        if at.client == "north":
            mine[at.index] = up
        return state, up

    kind.server_step, kind.client_step = summed, sent
    try:
        server.run()
    finally:
        kind.server_step, kind.client_step = server_step, client_step
    return sums, mine


@pytest.mark.slow
def test_with_false_keys_every_upload_is_read_and_without_the_words_nobody_signs_up(trial, tmp_path):
    with pytest.raises(TermsError, match="No party but the coordinator says that these are the keys of south, west"):
        mount(trial, tmp_path)
    assert not trial.folder("north").exists()
    # What the step is for: a party that says yes without having compared anything is read in every round.
    (tmp_path / "again").mkdir()
    sums, mine = mount(trial, tmp_path / "again", confirmed=True)
    assert len(sums) == 2
    for index, guess in sums.items():
        true = flatten(mine[index], noisy=False)[0].values
        np.testing.assert_allclose(flatten(guess, noisy=False)[0].values, true, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_words_of_a_false_registry_are_others(trial, tmp_path):
    false = Terms.read(false_registry(trial, tmp_path))
    honest = terms_words(trial.terms.fingerprint)  # what south reads aloud
    assert not same_words(honest, terms_words(false.fingerprint))
    join = ["join", str(tmp_path / "north.toml"), "--data", str(trial.files["north"]), "--folder",
            str(tmp_path / "store"), "--key", str(trial.root / "north.key"), "--yes"]  # fmt: skip
    said = run(app, [*join, "--fingerprint", honest])
    assert said.exit_code == 2
    assert "the other party holds a different file" in " ".join(said.output.split())
    assert terms_words(false.fingerprint) not in " ".join(said.output.split())
    assert " ".join(terms_words(false.fingerprint).split()[:3]) not in " ".join(re.findall("[a-z]+", said.output))
    said = run(app, join)  # no terminal, no words: --yes is no answer to that question
    assert said.exit_code == 2
    assert "--fingerprint" in said.output
    assert not (tmp_path / "store").exists()


@pytest.mark.slow
def test_words_hang_on_every_key_name_and_term(trial):
    said = {terms_words(trial.terms.fingerprint)}
    for change in ("rounds", "key", "name"):
        content = copy.deepcopy(dict(trial.terms.content))
        if change == "rounds":
            content["run"]["rounds"] = 3
        elif change == "key":
            content["parties"]["west"]["sign"] = "ab" * 32
        else:
            content["parties"]["east"] = content["parties"].pop("west")
        said.add(terms_words(Terms.of(content).fingerprint))
    assert len(said) == 4
    assert all(len(words.split()) == 12 for words in said)
    assert len({word[:4] for word in WORDS}) == len(WORDS) == 256


@pytest.mark.slow
def test_a_party_that_confirmed_is_not_asked_again_until_somebody_changes(trial):
    member(trial).sign_up(trial.files["north"], confirmed=True)
    assert member(trial).unknown() == []
    member(trial).sign_up(trial.files["north"])
    content = copy.deepcopy(dict(trial.terms.content))
    content["parties"]["west"]["sign"] = "ab" * 32
    terms_writer.save(trial.toml, content)
    assert member(trial).unknown() == ["west"]
    with pytest.raises(TermsError, match="keys of west"):
        member(trial).sign_up(trial.files["north"], accept_changes=True)


def test_without_a_secure_sum_nobody_is_asked(tmp_path):
    trial = Trial(tmp_path / "all", real.write_rows(tmp_path), real.terms("PooledNMF", 2))
    assert member(trial).unknown() == []
    member(trial).sign_up(trial.files["north"])


@pytest.mark.slow
def test_a_fourth_hospital_comes_in_by_the_word_of_a_known_one(trial, tmp_path):
    for name in trial.files:
        member(trial, name).sign_up(trial.files[name], confirmed=True)
    keys.make_key(tmp_path / "east.key", "east")
    pub = tmp_path / "east.key.pub"
    line = vouch(trial.terms, "east", pub, trial.root / "south.key")
    (tmp_path / "east.vouched").write_text(line)
    terms = setup.admit(trial.toml, "east", pub, [tmp_path / "east.vouched"])
    assert vouchers(terms, "east", trial.terms.content["parties"]) == ["south"]
    for name in ("north", "west"):  # no call: south's key is known there
        assert member(trial, name).unknown() == []
        member(trial, name).sign_up(trial.files[name], accept_changes=True)
    # Another key under the same signature, or a signature of somebody unknown, is worth nothing.
    content = copy.deepcopy(dict(terms.content))
    keys.make_key(tmp_path / "eve.key", "east")
    content["parties"]["east"] |= read_public(tmp_path / "eve.key.pub")
    known = {name: trial.terms.content["parties"][name] for name in trial.files}
    assert strangers(Terms.of(content), known) == ["east"]
    with pytest.raises(DataError, match="Not all of what vouches"):
        setup.admit(trial.toml, "east", tmp_path / "eve.key.pub", [tmp_path / "east.vouched"])
    with pytest.raises(TermsError, match="only parties can vouch"):
        vouch(trial.terms, "east", pub, tmp_path / "eve.key")
    with pytest.raises(DataError, match="its own key"):
        vouch(trial.terms, "south", trial.root / "south.key.pub", trial.root / "south.key")


def test_nobody_known_may_leave_under_the_word_of_another(trial, tmp_path):
    known = {name: trial.terms.content["parties"][name] for name in trial.files}
    content = copy.deepcopy(dict(trial.terms.content))
    del content["parties"]["west"]
    assert strangers(Terms.of(content), known) == ["west"]


@pytest.mark.slow
def test_vouching_on_the_command_line(trial, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = run(app, ["keygen", "east"])
    words = key_words("east", read_public("east.key.pub"))
    assert words in said.output
    ask = ["vouch", str(trial.toml), "east", "east.key.pub", "--key", str(trial.root / "south.key")]
    said = run(app, [*ask, "--fingerprint", "acorn actor album alpine amber anchor"])
    assert said.exit_code == 2
    assert not set(words.split()) & set(re.findall("[a-z]+", said.output))
    said = run(app, [*ask, "--fingerprint", words.upper()])
    assert said.exit_code == 0, said.output
    add = ["federation", "add", str(trial.toml), "east", "east.key.pub", "--vouched", "east.vouched"]
    assert run(app, add).exit_code == 0
    said = run(app, ["federation", "show", str(trial.toml)])
    assert f"east: {words}" in said.output


@pytest.mark.slow
def test_a_run_after_the_words_were_compared(trial, tmp_path):
    stores = {n: member(trial, n).sign_up(f, confirmed=True) for n, f in trial.files.items()}
    post = InProcessTransport({name: RemoteClient(store) for name, store in stores.items()})
    Server(tmp_path / "server", trial.terms.agreement(), trial.terms.policy(), post).run()
    result = from_bytes((trial.folder("west") / "result" / "factors.safetensors").read_bytes())
    assert result["factors"].V.shape == (3, 12)


@pytest.mark.slow
def test_in_format_2_vouching_ends_and_binds_to_one_federation(trial, tmp_path, monkeypatch):
    """A voucher of format 1 was good for ever, and in every federation of the same name."""
    content = copy.deepcopy(dict(trial.terms.content))
    content["federation"] |= {"format": 2, "id": "0123456789abcdef" * 2}
    terms = terms_writer.save(tmp_path / "second.toml", content)
    keys.make_key(tmp_path / "east.key", "east")
    pub, known = tmp_path / "east.key.pub", content["parties"]
    line = vouch(terms, "east", pub, trial.root / "south.key")

    def by(line, **federation):
        made = copy.deepcopy(content)
        made["federation"] |= federation
        made["parties"]["east"] = {**read_public(pub), "vouched": [line]}
        return vouchers(Terms.of(made), "east", known)

    assert by(line) == ["south"]
    assert by(line, id="f" * 32) == []
    assert by(line[:-10] + "2999-12-31") == []  # the day is signed, too

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=91)

    monkeypatch.setattr("fedfactor.federation.vouching.datetime", Later)
    assert by(line) == []
