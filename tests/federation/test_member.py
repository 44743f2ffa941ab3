from __future__ import annotations

import json
import stat
import time
from dataclasses import replace

import numpy as np
import pytest

from claims import _flower as real
from fedfactor.cli import app
from fedfactor.core.errors import DataError
from fedfactor.federation import certificates, keys, terms_writer, vouching
from fedfactor.federation.connectivity import Connection, explain
from fedfactor.federation.coordinator import Coordinator
from fedfactor.federation.fingerprint_words import key_words
from fedfactor.federation.party import Member
from fedfactor.federation.preflight import check_party
from fedfactor.federation.processes import ChildError
from fedfactor.federation.terms import DEFAULTS, Terms, TermsError
from fedfactor.federation.trial import Trial
from fedfactor.network.client import COLUMNS
from fedfactor.network.client_storage import Agreement
from fedfactor.network.https.protocol import OTHER_TERMS, UNKNOWN_KEY
from tests.command_line import CliRunner

pytest.importorskip("cryptography")
run = CliRunner().invoke


@pytest.fixture
def trial(tmp_path):
    return Trial(tmp_path / "all", real.write_rows(tmp_path), real.terms("PooledNMF", 3))


def member(trial, name="north"):
    return Member(trial.toml, trial.root / f"{name}.key", trial.folder(name))


def test_a_party_is_known_by_its_key(trial, tmp_path):
    assert member(trial, "west").name == "west"
    keys.make_key(tmp_path / "eve.key", "eve")
    with pytest.raises(TermsError, match="lists no party with the key"):
        Member(trial.toml, tmp_path / "eve.key")


def test_signing_up_again_keeps_the_state_and_other_terms_or_rows_are_refused(trial):
    store = member(trial).sign_up(trial.files["north"])
    (store.folder / "state.safetensors").write_bytes(b"kept")
    member(trial).sign_up(trial.files["north"])
    assert (store.folder / "state.safetensors").read_bytes() == b"kept"
    with pytest.raises(DataError, match="is not the file"):
        member(trial).sign_up(trial.files["south"])
    content = {**trial.terms.content, "algorithm": {**trial.terms.content["algorithm"], "n_components": 4}}
    terms_writer.save(trial.toml, content)
    with pytest.raises(TermsError, match="n_components: 3 became 4"):
        member(trial).sign_up(trial.files["north"])
    assert (store.folder / "state.safetensors").exists()
    (store.folder / COLUMNS).write_bytes(b"of other terms")
    member(trial).sign_up(trial.files["north"], accept_changes=True)
    assert not (store.folder / "state.safetensors").exists()
    assert not (store.folder / COLUMNS).exists()


def test_changed_parties_are_shown_in_words_that_can_be_compared(trial, tmp_path):
    parties = trial.terms.content["parties"]
    made = {}
    for name in ("west", "harbour"):
        keys.make_key(tmp_path / f"{name}.key", name)
        made[name] = vouching.read_public(tmp_path / f"{name}.key.pub")
    file = tmp_path / "draft.toml"
    draft = terms_writer.save(file, {**trial.terms.content, "parties": {**parties, "harbour": made["harbour"]}})
    line = vouching.vouch(draft, "harbour", tmp_path / "harbour.key.pub", trial.root / "north.key")
    harbour = {**made["harbour"], "vouched": [line]}
    changed = {"north": parties["north"], "west": made["west"], "harbour": harbour}
    now = terms_writer.save(file, {**trial.terms.content, "parties": changed})
    added, removed, replaced = now.differences(trial.terms)
    assert added == (
        f'parties: harbour was added, with the key "{key_words("harbour", harbour)}"; vouched for by north'
    )
    assert removed == "parties: south was removed"
    old, new = key_words("west", parties["west"]), key_words("west", made["west"])
    assert old != new
    assert replaced == f'parties: the key of west was "{old}" and is now "{new}"; no party vouches for it'


def test_privacy_terms_that_changed_are_refused_too(trial):
    member(trial).sign_up(trial.files["north"])
    content = {**trial.terms.content, "privacy": {**trial.terms.content["privacy"], "minimum_rows": 1}}
    terms_writer.save(trial.toml, content)
    with pytest.raises(TermsError, match=r"privacy\.minimum_rows: 5 became 1"):
        member(trial).sign_up(trial.files["north"])


def test_terms_that_are_not_complete_cannot_be_agreed_to(trial, tmp_path):
    content = {**trial.terms.content, "features": DEFAULTS["features"]}
    terms_writer.save(trial.toml, content)
    member = Member(trial.toml, trial.root / "north.key", tmp_path / "n")
    with pytest.raises(TermsError, match=r"\[features\] names is empty"):
        member.sign_up(trial.files["north"])
    found = {line.what: line for line in check_party(member, trial.files["north"])}
    assert found["agreement"].state == "wrong"
    assert "ask the coordinator" in found["agreement"].remedy
    assert "rows" not in found


def test_a_party_keeps_its_things_to_itself(trial):
    store = member(trial).sign_up(trial.files["north"])
    for path in (store.folder, store.folder / "data"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (store.folder / "data" / "X.npy", trial.root / "north.key", trial.root / "server" / "ca.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert isinstance(store.shard.X, np.memmap)


def test_a_key_is_never_overwritten(tmp_path):
    keys.make_key(tmp_path / "a.key", "a")
    with pytest.raises(DataError, match="exists, and a key that others know"):
        keys.make_key(tmp_path / "a.key", "a")


def test_a_private_key_that_was_sent_is_not_taken(tmp_path):
    keys.make_key(tmp_path / "north.key", "north")
    with pytest.raises(DataError, match="is a private key, which must never leave its party"):
        keys.public_line(tmp_path / "north.key")


def test_certificates_stand_up_to_their_authority_and_can_be_renewed(tmp_path):
    from cryptography import x509

    authority = certificates.make_authority(tmp_path, "x")
    first = certificates.make_server_certificate(tmp_path, ["hospital.example", "10.1.2.3"]).read_bytes()
    again = certificates.make_server_certificate(tmp_path, ["hospital.example"]).read_bytes()
    assert first != again
    root = x509.load_pem_x509_certificate(authority.read_bytes())
    for data in (first, again):
        x509.load_pem_x509_certificate(data).verify_directly_issued_by(root)
    names = x509.load_pem_x509_certificate(first).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "hospital.example" in names.get_values_for_type(x509.DNSName)
    assert "127.0.0.1" in map(str, names.get_values_for_type(x509.IPAddress))


@pytest.mark.slow
def test_commands_from_nothing_to_terms(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = real.write_rows(tmp_path)
    said = run(app, ["federation", "init", "study", "--rank", "2", "--purpose", "to learn"])
    assert said.exit_code == 0, said.output
    for name in files:
        assert run(app, ["keygen", name]).exit_code == 0
        assert run(app, ["federation", "add", "study/federation.toml", name, f"{name}.key.pub"]).exit_code == 0
        assert run(app, ["features", f"{name}.npz"]).exit_code == 0
    lists = [f"{name}.features.json" for name in files]
    assert json.loads((tmp_path / lists[0]).read_text())[0] == "feature 0"
    said = run(app, ["federation", "agree", "study/federation.toml", *lists])
    assert "12 columns agreed" in said.output
    said = run(app, ["federation", "show", "study/federation.toml"])
    assert "to learn" in said.output
    assert "north, south, west" in said.output
    said = run(app, ["join", "study/federation.toml", "--data", "north.npz", "--key", "north.key"], input="n\n")
    assert said.exit_code == 1
    assert not (tmp_path / "north").exists()
    said = run(app, ["status", "study/federation.toml"])
    assert said.exit_code == 2
    assert "no party's folder" in said.output
    said = run(app, ["start", "study/federation.toml"])
    assert said.exit_code == 2
    assert "fedfactor serve" in said.output
    said = run(app, ["stop", "study/federation.toml"])
    assert said.exit_code == 2
    assert "no run to stop" in said.output


@pytest.mark.slow
def test_results_and_status_of_a_party(trial, tmp_path):
    from fedfactor.network.client import RemoteClient
    from fedfactor.network.server import Server
    from tests.network.in_process import InProcessTransport

    stores = {name: member(trial, name).sign_up(file) for name, file in trial.files.items()}
    trial.coordinator.prepare = lambda: None
    post = InProcessTransport({name: RemoteClient(store) for name, store in stores.items()})
    Server(trial.coordinator.folder, trial.terms.agreement(), trial.terms.policy(), post).run()
    with pytest.raises(DataError, match="no run to stop"):
        trial.coordinator.stop()
    (trial.coordinator.folder / "agreement.json").write_bytes(trial.terms.agreement().to_json())
    with pytest.raises(DataError, match="the last one is finished"):
        trial.coordinator.stop()
    assert not (trial.coordinator.folder / "stop").exists()
    said = run(app, ["status", str(trial.folder("north"))])
    assert "answered end" in said.output
    said = run(app, ["results", str(trial.folder("north")), "-o", str(tmp_path / "out")])
    assert said.exit_code == 0, said.output
    names = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    files = {"components.safetensors", "features.json", "run.json", "north.safetensors"}
    assert names == files | {"components.csv", "north.csv", "report.html"}
    said = run(app, ["results", str(trial.folder("north")), "-o", str(tmp_path / "out")])
    assert "already holds results" in said.output
    said = run(app, ["info", str(tmp_path / "out")])
    assert "relative error of north's rows" in said.output
    assert "private U of 1 owners: north" in said.output
    new = ["transform", str(tmp_path / "out"), str(trial.files["south"]), "-o", str(tmp_path / "new.npy")]
    said = run(app, new)
    assert said.exit_code == 0, said.output
    (trial.coordinator.folder / "server.json").write_text("{}")
    (trial.coordinator.folder / "features.json").write_text(json.dumps(list(trial.terms.features)))
    said = run(app, ["results", str(trial.toml), "-o", str(tmp_path / "shared")])
    assert said.exit_code == 0, said.output
    said = run(app, ["info", str(tmp_path / "shared")])
    assert "worst owner" in said.output
    assert "private U of 0 owners" in said.output


def test_a_certificate_is_looked_at_before_parties_do(trial):
    place = trial.coordinator
    assert place.certificate_words() == ""
    certificates.make_server_certificate(place.folder, ["127.0.0.1"], days=12)
    assert "ends in 12 days" in place.certificate_words()
    assert "fedfactor federation certify" in place.certificate_words()
    certificates.make_server_certificate(place.folder, ["127.0.0.1"], days=-0.02)
    with pytest.raises(ChildError, match=r"ended 0 days ago.*fedfactor federation certify"):
        place.certificate_words()
    certificates.make_server_certificate(place.folder, ["127.0.0.1"])
    server = {**trial.terms.content["server"], "address": "fed.example.org:8000"}
    terms_writer.save(trial.toml, {**trial.terms.content, "server": server})
    with pytest.raises(ChildError, match=r"not made out for fed.example.org.*fedfactor federation certify"):
        Coordinator(trial.toml).certificate_words()


@pytest.mark.parametrize(
    ("error", "problem", "remedy"),
    [
        ("certificate verify failed: certificate has expired", "has expired", "federation certify"),
        ("Hostname mismatch, certificate is not valid for 'a'", "not made out for", "federation certify"),
        (
            "certificate verify failed: self-signed certificate",
            "not the one that federation.toml names",
            "send nothing",
        ),
        ("[Errno 111] Connection refused", "nothing listens", "fedfactor serve"),
        ("[Errno -2] Name or service not known", "is not known here", "DNS"),
        ("timed out", "nothing answers", "firewalls"),
        (UNKNOWN_KEY, "does not know this key", "ask the coordinator"),
        (
            f"{OTHER_TERMS}: 1234",
            "the agreement changed: the server serves other terms (fingerprint 1234)",
            "consent with fedfactor accept FOLDER",
        ),
    ],
)
def test_why_a_server_cannot_be_reached(error, problem, remedy):
    found = explain(error, "fed.example.org:8000")
    assert problem in found.problem
    assert remedy in found.remedy


@pytest.mark.slow
def test_who_leaves_is_removed_at_once_or_by_a_new_agreement(trial, tmp_path):
    gone = run(app, ["federation", "remove", str(trial.toml), "west"])
    assert "new agreement" in gone.output  # all three were needed
    assert Coordinator(trial.toml).terms.names == ("north", "south")
    other = Trial(tmp_path / "b", trial.files, real.terms("PooledNMF", 3, {"minimum": 0}))
    assert other.terms.policy().minimum == 2  # more than half
    gone = run(app, ["federation", "remove", str(other.toml), "west"])
    assert "under the same terms" in gone.output
    assert Coordinator(other.toml).terms.fingerprint == other.terms.fingerprint
    assert other.coordinator.removed() == ["west"]
    assert [line["deed"] for line in other.coordinator.journal.lines()] == ["key revoked", "removed"]
    other.coordinator.prepare()
    assert set(json.loads((other.coordinator.folder / "server.json").read_bytes())["keys"]) == {"north", "south"}
    assert run(app, ["federation", "remove", str(other.toml), "east"]).exit_code == 2


@pytest.mark.slow
def test_nobody_is_removed_from_a_secure_sum_of_three(tmp_path):
    other = Trial(tmp_path, *real.case("PooledNMF secure", tmp_path))
    before = other.toml.read_bytes()
    gone = run(app, ["federation", "remove", str(other.toml), other.terms.names[0]])
    assert gone.exit_code == 2
    assert "secure aggregation needs 3. Add another party first" in " ".join(gone.output.split())
    assert other.toml.read_bytes() == before


def test_a_connection_that_nobody_wrote_about_for_long_is_none():
    now = time.time()
    assert Connection(True, now, now - 500).words("a:1").startswith("connected to a:1 since")
    assert Connection(True, now - 500, now - 500).words("a:1").startswith("NOT connected: no request went through")


def test_init_writes_what_protects_uploads_so_that_nobody_edits_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def init(folder, *words):
        said = run(app, ["federation", "init", folder, "--rank", "2", *words])
        return said, Terms.read(tmp_path / folder / "federation.toml") if said.exit_code == 0 else None

    _, terms = init("summed", "--privacy", "secure-sum", "--step", "log1p", "--step", "scale declared")
    assert terms.content["privacy"]["protect"] == "secure-sum"
    assert terms.content["preprocess"]["steps"] == ["log1p", "scale declared"]
    noise = "--privacy dp --epsilon 2 --delta 1e-6 --row-bound 10 --rows 5000 --colluding 2".split()
    _, terms = init("noisy", *noise)
    wanted = {"epsilon": 2.0, "delta": 1e-6, "unit": "row", "row_bound": 10.0, "rows": 5000.0, "colluding": 2}
    assert wanted.items() <= terms.noise.items()
    _, terms = init("client", "--privacy", "dp", "--unit", "client", "--clip", "3")
    assert terms.noise["epsilon"] == 1.0
    assert terms.noise["clip"] == 3.0
    for words, wrong in (
        (["--epsilon", "2"], "--epsilon speaks of noise"),
        (["--privacy", "secure-sum", "--colluding", "1"], "--colluding speaks of noise"),
        (["--privacy", "dp"], "needs row_bound and rows"),
        (["--privacy", "median"], "none, secure-sum, dp"),
    ):
        said, _ = init("wrong", *words)
        assert said.exit_code == 2
        assert wrong in " ".join(said.output.split())
        assert not (tmp_path / "wrong").exists()


def test_every_flipped_bit_of_an_agreement_is_refused(trial):
    """44 of 120 were read, with another content."""
    file = member(trial).sign_up(trial.files["north"]).folder / "agreement.json"
    whole = file.read_bytes()
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises((DataError, ValueError, KeyError, TypeError, AttributeError)):
            Agreement.of(bytes(data))
    file.write_bytes(whole.replace(b'"rounds": ', b'"rounds": 9'))
    with pytest.raises(DataError, match=r"agreement\.json cannot be read \(its checksum is wrong\)"):
        member(trial).sign_up(trial.files["north"])


def test_an_agreement_with_another_checksum_gives_way_to_the_signed_terms(trial):
    file = member(trial).sign_up(trial.files["north"]).folder / "agreement.json"
    whole = file.read_bytes()
    file.write_bytes(replace(Agreement.of(whole), rounds=9999, protect="none").to_json())
    with pytest.warns(UserWarning, match="differs from the terms that this party signed up for"):
        assert member(trial).sign_up(trial.files["north"]).agreement == Agreement.of(whole)
    assert file.read_bytes() == whole
