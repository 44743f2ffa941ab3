"""Which components are stable: further runs of the federation itself, where its terms allow them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.command_line import CliRunner

pytest.importorskip("cryptography")

import fedfactor
from claims import _flower as real
from fedfactor.cli import app
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import DataError
from fedfactor.federation.coordinator import Coordinator
from fedfactor.federation.model_versions import alike, versions
from fedfactor.federation.party import Member
from fedfactor.federation.setup import words
from fedfactor.federation.stability import refuse_absent, stability
from fedfactor.federation.terms import Terms, TermsError
from fedfactor.federation.trial import Trial
from fedfactor.io.read import load_shard
from fedfactor.network.client import RemoteClient
from fedfactor.network.client_storage import ClientFolder
from fedfactor.network.exchange import NotEnough
from fedfactor.network.server import Server
from tests.federation.named_files import unnamed
from tests.network.in_process import InProcessTransport

run = CliRunner().invoke
BOTH = {"seeds": 1, "leave_out": True}


def local(trial, seed, names):
    """Run the same on the local engine."""
    method = fedfactor.algorithms.PooledNMF(3, tol=0.0)
    owners = Federation({name: load_shard(trial.files[name]) for name in names})
    rounds = trial.terms.content["run"]["rounds"]
    return fedfactor.run(method, owners, rounds=rounds, seed=seed, engine=fedfactor.LocalEngine(workers=1))


def expected(trial):
    """Return the cosines that runs on this machine give."""
    names, seed = trial.terms.names, trial.terms.content["run"]["seed"]
    V = local(trial, seed, names).V
    wanted = {"seed 1": alike(V, local(trial, seed + 1, names).V)}
    for name in names:
        wanted[f"without {name}"] = alike(V, local(trial, seed, [other for other in names if other != name]).V)
    return wanted


def signed_up(trial, **more):
    clerks = {}
    for name, file in trial.files.items():
        member = Member(trial.toml, trial.root / f"{name}.key", trial.folder(name))
        clerks[name] = RemoteClient(member.sign_up(file, confirmed=True, **more))
    return InProcessTransport(clerks)


@pytest.mark.slow
def test_components_are_compared_with_further_runs_and_parties_keep_their_results(tmp_path):
    changes = real.terms("PooledNMF", 4, tol=0.0) | {"stability": BOTH}
    trial = Trial(tmp_path / "all", real.write_rows(tmp_path), changes)
    assert "1 runs with other seeds and one without each party" in words(trial.terms)
    place, post = Coordinator(trial.toml), signed_up(trial)
    place.prepare()
    with pytest.raises(DataError, match="no finished run under these terms"):
        stability(place, post, print)
    main = Server(place.folder, place.terms.agreement(), place.terms.policy(), post).run()
    said = []
    found = stability(place, post, said.append)
    assert found == expected(trial)
    assert list(found) == ["seed 1", "without north", "without south", "without west"]
    assert [line.partition(":")[0] for line in said][-1] == "without west (4 of 4)"
    kept = place.folder / "stability" / main.run / "stability.json"
    assert json.loads(kept.read_bytes())["cosines"] == found
    north = ClientFolder(trial.folder("north"))
    assert list(north.results()) == [main.run]
    asked = {line["run"] for line in north.sent()}
    assert len(asked) == 4  # the run, another seed, and two of those without one; each is counted
    assert north.answered.left().startswith("Left         6 of 10 runs")
    out = run(app, ["results", str(trial.folder("north")), "-o", str(tmp_path / "out")])
    assert f"Run {main.run}" in out.output
    assert "has not ended" not in out.output
    # A second call finds what was reached, and asks for no further run.
    stability(place, post, said.append)
    assert {line["run"] for line in north.sent()} == asked
    assert [version.run for version in versions(place.folder)] == [main.run]


@pytest.mark.slow
def test_under_a_secure_sum_other_seeds_keep_everybody_in_every_sum(tmp_path):
    files, changes = real.case("PooledNMF secure", tmp_path)
    trial = Trial(tmp_path / "all", files, changes | {"stability": {"seeds": 1}})
    place, post = Coordinator(trial.toml), signed_up(trial)
    place.prepare()
    Server(place.folder, place.terms.agreement(), place.terms.policy(), post).run()
    found = stability(place, post, print)
    np.testing.assert_allclose(found["seed 1"], expected(trial)["seed 1"], atol=1e-5)


@pytest.mark.slow
def test_with_noise_each_further_run_is_paid_by_every_party(tmp_path):
    pytest.importorskip("dp_accounting")
    privacy = {"protect": "dp", "epsilon": 1.0, "row_bound": 5.0, "rows": 135.0, "minimum_rows": 5}
    changes = real.terms("PooledNMF", 2) | {"privacy": privacy, "stability": {"seeds": 1}}
    trial = Trial(tmp_path / "all", real.write_rows(tmp_path), changes)
    assert "each is counted, and costs its ε" in words(trial.terms)
    place, post = Coordinator(trial.toml), signed_up(trial, budget=1.2)
    place.prepare()
    Server(place.folder, place.terms.agreement(), place.terms.policy(), post).run()
    with pytest.raises(NotEnough):  # the second ε is beyond what these rows may cost
        stability(place, post, print)
    ledger = ClientFolder(trial.folder("north")).ledger
    assert ledger.epsilon() == pytest.approx(1.0, rel=1e-3)
    found = stability(place, signed_up(trial, budget=3.0, raise_budget=True), print)
    assert len(found["seed 1"]) == 3
    assert 1.2 < ClientFolder(trial.folder("north")).ledger.epsilon() <= 2.0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"privacy": {"protect": "secure-sum"}}, "differ by what that party sends.*new agreement.*noise"),
        ({"privacy": {"protect": "dp", "epsilon": 1.0, "row_bound": 5.0, "rows": 160.0}}, "differ by what that party"),
        ({"algorithm": {"name": "FNMF", "n_components": 2}}, "is for PooledNMF"),
        ({"run": {"start": f"sha256:{'0' * 64}"}}, "start fixes them"),
        ({"stability": {"seeds": -1}}, "at least 0"),
        ({"stability": {"leave_out": "yes"}}, "true or false"),
    ],
)
def test_further_runs_that_open_sums_or_say_nothing_are_refused(changes, said):
    with pytest.raises(TermsError, match=said):
        Terms.of({"stability": BOTH, **changes})
    assert "stability" not in Terms.of({}).content  # terms without it keep their fingerprint


def test_without_a_word_in_the_terms_nothing_further_is_run(tmp_path):
    trial = Trial(tmp_path / "all", real.write_rows(tmp_path), real.terms("PooledNMF", 2))
    with pytest.raises(DataError, match="new agreement"):
        stability(trial.coordinator, InProcessTransport({}), print)
    assert "fedfactor serve" in run(app, ["federation", "stability", str(trial.toml)]).output


def test_who_cannot_be_asked_is_named_before_anything_is_run(tmp_path):
    trial = Trial(tmp_path / "all", real.write_rows(tmp_path), real.terms("PooledNMF", 2) | {"stability": BOTH})
    place, post = trial.coordinator, InProcessTransport({})
    post.here = {"north": "1", "west": "1"}
    with pytest.raises(DataError, match=r"^south cannot be asked"):
        refuse_absent(place, post)
    post.here["south"] = "1"
    refuse_absent(place, post)


@pytest.mark.integration
@pytest.mark.federation
@pytest.mark.slow
def test_real_parties_answer_further_runs(tmp_path):
    pytest.importorskip("aiohttp")
    changes = real.terms("PooledNMF", 3, tol=0.0) | {"stability": BOTH}
    with Trial(tmp_path / "all", real.write_rows(tmp_path), changes) as trial:
        trial.join_together(trial.terms.names)
        trial.coordinator.start()
        assert trial.coordinator.wait(400)["state"] == "finished"
        said = run(app, ["federation", "stability", str(trial.toml)])
        assert said.exit_code == 0, said.output
        assert "Least of each component" in said.output
        (kept,) = (trial.coordinator.folder / "stability").glob("*/stability.json")
        assert json.loads(kept.read_bytes())["cosines"] == expected(trial)
        assert unnamed(trial) == []
