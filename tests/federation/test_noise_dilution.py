"""Under noise, one dishonest party cannot bring in others whose noise counts for nothing."""

from __future__ import annotations

import copy
import math

import pytest

from claims import _flower as real
from fedfactor.federation import keys, setup, terms_writer
from fedfactor.federation.party import Member
from fedfactor.federation.setup import words
from fedfactor.federation.terms import TermsError
from fedfactor.federation.trial import Trial
from fedfactor.federation.vouching import vouch
from tests.federation.test_noise_terms import ROWS

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")
pytestmark = pytest.mark.slow


@pytest.fixture
def trial(tmp_path):
    second = {"federation": {"format": 2, "id": "5a" * 16}, "privacy": {**ROWS, "colluding": 1}}
    found = Trial(tmp_path / "all", real.write_rows(tmp_path), {**real.terms("PooledNMF", 3), **second})
    for name in found.files:
        member(found, name).sign_up(found.files[name], confirmed=True)
    return found


def member(trial, name="north"):
    return Member(trial.toml, trial.root / f"{name}.key", trial.folder(name))


def admit(trial, tmp_path, name, vouchers):
    keys.make_key(tmp_path / f"{name}.key", name)
    pub, lines = tmp_path / f"{name}.key.pub", []
    for by in vouchers:
        lines.append(tmp_path / f"{name}.{by}.vouched")
        lines[-1].write_text(vouch(trial.terms, name, pub, trial.root / f"{by}.key"))
    return setup.admit(trial.toml, name, pub, lines)


def test_one_party_vouches_for_many_and_nobody_signs_up(trial, tmp_path):
    """Sixteen such parties made ε = 1 an actual 2.71."""
    names = [f"clinic {n:02d}" for n in range(16)]
    for name in names:
        admit(trial, tmp_path, name, ["west"])
    assert member(trial).unknown() == names
    with pytest.raises(TermsError, match="2 known parties must vouch for each new one"):
        member(trial).sign_up(trial.files["north"], accept_changes=True)
    (change,) = [line for line in member(trial).changes() if line.startswith("NOISE")]
    before, after = trial.terms.noise_share, member(trial).terms.noise_share
    assert f"was {before:.4g} and becomes {after:.4g}" in change
    assert after / before == pytest.approx(math.sqrt(2 / 18))
    assert f"each of 19 parties adds noise of {after:.4g}" in words(member(trial).terms)


def test_the_same_voucher_twice_is_one(trial, tmp_path):
    admit(trial, tmp_path, "east", ["west"])
    content = copy.deepcopy(dict(member(trial).terms.content))
    content["parties"]["east"]["vouched"] *= 2
    terms_writer.save(trial.toml, content)
    assert member(trial).unknown() == ["east"]


def test_a_newcomer_that_was_admitted_vouches_for_nobody_of_the_same_terms(trial, tmp_path):
    admit(trial, tmp_path, "east", ["west"])
    terms = admit(trial, tmp_path, "far east", ["west"])
    content = copy.deepcopy(dict(terms.content))
    line = vouch(terms, "far east", tmp_path / "far east.key.pub", tmp_path / "east.key")
    content["parties"]["far east"]["vouched"].append(line)
    terms_writer.save(trial.toml, content)
    assert member(trial).unknown() == ["east", "far east"]


def test_enough_vouchers_or_the_words_let_a_newcomer_in(trial, tmp_path):
    admit(trial, tmp_path, "east", ["west", "south"])
    assert member(trial).unknown() == []
    member(trial).sign_up(trial.files["north"], accept_changes=True)
    admit(trial, tmp_path, "centre", ["west"])
    assert member(trial).unknown() == ["centre"]
    member(trial).sign_up(trial.files["north"], accept_changes=True, confirmed=True)
    assert member(trial).unknown() == []


def test_vouchers_that_never_expire_count_for_nothing_under_noise(tmp_path):
    changes = {**real.terms("PooledNMF", 3), "privacy": {**ROWS, "colluding": 0}}
    trial = Trial(tmp_path / "all", real.write_rows(tmp_path), changes)
    member(trial).sign_up(trial.files["north"], confirmed=True)
    admit_line = tmp_path / "line"
    keys.make_key(tmp_path / "east.key", "east")
    pub = tmp_path / "east.key.pub"
    admit_line.write_text(vouch(trial.terms, "east", pub, trial.root / "west.key"))
    content = copy.deepcopy(dict(trial.terms.content))
    content["parties"]["east"] = {**setup.vouching.read_public(pub), "vouched": [admit_line.read_text()]}
    terms_writer.save(trial.toml, content)
    assert member(trial).unknown() == ["east"]
