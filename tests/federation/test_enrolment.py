"""Enrolment by invitations, as an operator does it: commands in folders of their own, files carried by hand."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("aiohttp")

from fedfactor.core.errors import DataError
from fedfactor.federation import enrolment, setup
from fedfactor.federation.processes import free_port
from fedfactor.federation.terms import Terms
from fedfactor.io.file_content import Reading
from tests.command_line import CliRunner

PATIENCE = 120.0
NAMES = ("north", "south", "west", "east")


def rows(folder, name, seed=0):
    rng = np.random.default_rng(seed)
    file = folder / f"{name}.csv"
    head = ",".join(f"feature {j}" for j in range(8))
    np.savetxt(file, rng.gamma(1.0, 1.0, (120, 8)), delimiter=",", header=head, comments="")
    return file


def found(tmp_path, *words):
    about = {"algorithm": "PooledNMF", "rank": 3, "rounds": 3, "name": "", "purpose": "", "contact": "", "own": None}
    return setup.found(tmp_path / "study", address=f"127.0.0.1:{free_port()}", settings=words, **about)


class Site:
    """One organisation: a folder, and the commands that were given in it."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.commands = []
        self.children = []
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}

    def _start(self, words, **more):
        self.commands.append(words[0])
        command = [sys.executable, "-m", "fedfactor", *map(str, words)]
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, **more)

    def run(self, *words, code=0):
        child = self._start(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
        )
        said, _ = child.communicate(timeout=PATIENCE)
        assert child.returncode == code, said
        return said

    def background(self, *words, terminal=None):
        log = (self.folder / f"{words[0]}.log").open("ab")
        child = self._start(words, stdout=log, stderr=log, stdin=terminal or subprocess.DEVNULL)
        self.children.append(child)
        return child

    def said(self, command):
        return (self.folder / f"{command}.log").read_text()

    def hears(self, command, pattern):
        end = time.monotonic() + PATIENCE
        while not (match := re.search(pattern, self.said(command))):
            assert time.monotonic() < end, self.said(command)
            time.sleep(0.2)
        return match

    def end(self):
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in self.children:
            child.wait(PATIENCE)


@pytest.fixture
def sites(tmp_path):
    made = {name: Site(tmp_path / name) for name in ("coordinator", *NAMES, "harbour")}
    yield made
    for site in reversed(made.values()):
        site.end()


def mail(site, file, other):
    shutil.copy(site.folder / file, other.folder)


def invited(sites, names, said):
    """Carry the invitations, read the words over the telephone, accept, and carry the replies back."""
    coordinator = sites["coordinator"]
    for name in names:
        words = re.search(rf"{name}.invite: .*: (.*)", said)[1]
        mail(coordinator, f"{name}.invite", sites[name])
        rows(sites[name].folder, name, seed=len(name))
        sites[name].run("accept", f"{name}.invite", "--data", f"{name}.csv", "--fingerprint", words)
        mail(sites[name], f"{name}.accepted", coordinator)
    return [f"{name}.accepted" for name in names]


def joined_at_a_terminal(site):
    """Join at a terminal, where a person answers that the words were compared."""
    ours, theirs = os.openpty()
    site.background("join", terminal=theirs)
    words = site.hears("join", r"In words +(\w+(?: \w+){11})")[1]
    os.write(ours, b"y\ny\n")
    os.close(theirs)
    return words


@pytest.mark.integration
@pytest.mark.federation
@pytest.mark.slow
def test_a_federation_of_four_takes_six_commands_and_three_at_each_party(sites):
    coordinator = sites["coordinator"]
    address = f"127.0.0.1:{free_port()}"
    coordinator.run(
        "federation", "init", "study", "--address", address, "-k", "3", "--rounds", "3", "--privacy", "secure-sum",
        "--set", "limits.runs=5", "--set", "policy.deadline=60", "--set", "algorithm.tol=0",
    )  # fmt: skip
    said = coordinator.run("federation", "invite", "study/federation.toml", *NAMES)
    coordinator.run("federation", "add", "study/federation.toml", *invited(sites, NAMES, said))
    coordinator.background("serve", "study/federation.toml")
    heard = {joined_at_a_terminal(sites[name]) for name in NAMES}
    assert len(heard) == 1  # what they read to each other
    for name in NAMES:
        coordinator.hears("serve", f"{name} is connected")
    said = coordinator.run("start", "study/federation.toml", "--wait", "100")
    assert "finished after 3 rounds" in said
    coordinator.run("results", "study/federation.toml", "-o", "out")
    assert len(coordinator.commands) == 6, coordinator.commands
    for name in NAMES:
        sites[name].run("results", name, "-o", "out")
        assert len(sites[name].commands) == 3, sites[name].commands
    assert len({(sites[name].folder / "out/shared/components.safetensors").read_bytes() for name in NAMES}) == 1
    terms = Terms.read(coordinator.folder / "study" / "federation.toml")
    assert (terms.limits[0], terms.policy().deadline, terms.algorithm().tol) == (5, 60, 0)


@pytest.mark.integration
@pytest.mark.federation
@pytest.mark.slow
def test_parties_are_added_removed_and_get_new_keys_while_the_others_wait(sites):
    """Nobody's join is started again but that of the party whose key changes."""
    coordinator, names = sites["coordinator"], NAMES[:3]
    file = "study/federation.toml"
    coordinator.run("federation", "init", "study", "--address", f"127.0.0.1:{free_port()}", "-k", "3", "--rounds", "2")
    replies = invited(sites, names, coordinator.run("federation", "invite", file, *names))
    coordinator.run("federation", "add", file, *replies)
    for name in names:
        sites[name].background("join")  # before anything is served, and without a terminal
        sites[name].hears("join", "cannot be reached")
    coordinator.background("serve", file)
    for name in names:
        sites[name].hears("join", "Connected to")
    assert "finished" in coordinator.run("start", file, "--wait", "100")

    def served_again(*waiting):
        coordinator.end()
        coordinator.children.clear()
        coordinator.background("serve", file)
        for name in waiting:
            sites[name].hears("join", "To consent: fedfactor accept")
            sites[name].run("accept", name, "--yes")
            sites[name].hears("join", "Taking part on the terms that were consented to")

    # A fifth party is added.
    replies = invited(sites, ["harbour"], coordinator.run("federation", "invite", file, "harbour"))
    assert "columns agreed" in coordinator.run("federation", "add", file, *replies)
    served_again(*names)
    assert "harbour was added" in sites["north"].said("join")
    sites["harbour"].background("join")
    sites["harbour"].hears("join", "Connected to")
    assert "finished" in coordinator.run("start", file, "--again", "--wait", "100")
    # West's key is replaced; the former one is revoked, with reason and date.
    west = sites["west"]
    west.run("keygen", "west", "--out", "west-2.key")
    mail(west, "west-2.key.pub", coordinator)
    mail(west, "west.key.pub", coordinator)
    coordinator.run("federation", "add", file, "west", "west-2.key.pub", "--reason", "the laptop was stolen")
    said = coordinator.run("federation", "add", file, "west", "west.key.pub", code=2)
    assert "the laptop was stolen" in said
    west.end()
    for site in sites.values():
        (site.folder / "join.log").unlink(missing_ok=True)
        site.children = [child for child in site.children if child.poll() is None]
    # their logs are open yet, under no name: what they say is in events.log
    said = {name: sites[name].folder / name / "events.log" for name in ("north", "south", "harbour")}
    before = {name: len(file_.read_text()) for name, file_ in said.items()}
    coordinator.end()
    coordinator.children.clear()
    coordinator.background("serve", file)
    west.background("join", "west", "--key", "west-2.key", "--yes")
    west.hears("join", "Connected to")
    for name, log in said.items():
        end = time.monotonic() + PATIENCE
        while "the key of west was" not in log.read_text()[before[name] :]:
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        sites[name].run("accept", name, "--yes")
    assert "finished" in coordinator.run("start", file, "--again", "--wait", "100")
    # Harbour is removed for good; the others go on under the same terms.
    coordinator.run("federation", "remove", file, "harbour", "--reason", "end of contract")
    sites["harbour"].children[-1].wait(PATIENCE)
    assert "finished" in coordinator.run("start", file, "--again", "--wait", "100")
    gone = json.loads((coordinator.folder / "study/server/revoked.json").read_text())
    assert [(each["party"], each["reason"]) for each in gone] == [
        ("west", "the laptop was stolen"),
        ("harbour", "end of contract"),
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", each["date"]) for each in gone)


def accepted(tmp_path, file, name="north", **more):
    path, words = enrolment.invite(file, [name], tmp_path)[name]
    data = rows(tmp_path, name)
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        return path, words, enrolment.accept(path, data, None, None, Reading(), **more)[0].resolve()
    finally:
        os.chdir(here)


def test_a_reply_is_taken_once_invited_and_unchanged(tmp_path):
    file = found(tmp_path)
    _, _, reply = accepted(tmp_path, file)
    about = json.loads(reply.read_text())
    for change in ({"party": "eve"}, {"columns": ["a"]}, {"proof": "00"}, {"kind": "other"}):
        reply.write_text(json.dumps({**about, **change}))
        with pytest.raises(DataError):
            enrolment.admit_reply(file, reply)
        assert Terms.read(file).names == ()
    reply.write_text(json.dumps(about))
    enrolment.invite(file, ["north"], tmp_path)  # another invitation: replies to the first one count no more
    with pytest.raises(DataError, match="does not answer the last invitation"):
        enrolment.admit_reply(file, reply)


def test_columns_are_agreed_on_when_the_last_invited_party_replied(tmp_path):
    file = found(tmp_path)
    enrolment.invite(file, ["south"], tmp_path)
    _, _, reply = accepted(tmp_path, file)
    enrolment.admit_reply(file, reply)
    assert enrolment.agree_on_replies(file) == (0, ["south"])
    _, _, reply = accepted(tmp_path, file, "south")
    enrolment.admit_reply(file, reply)
    assert enrolment.agree_on_replies(file) == (8, [])
    assert len(Terms.read(file).features) == 8


def test_an_invitation_is_compared_by_words_that_no_switch_replaces(tmp_path, monkeypatch):
    from fedfactor.cli import app

    file = found(tmp_path)
    path, words = enrolment.invite(file, ["north"], tmp_path)["north"]
    rows(tmp_path, "north")
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke
    for more in ([], ["--yes"], ["--fingerprint", "acorn actor album alpine amber anchor"]):
        said = run(app, ["accept", "north.invite", "--data", "north.csv", *more])
        assert said.exit_code == 2, said.output
        assert words not in said.output
        assert not (tmp_path / "north").exists()
    changed = json.loads(path.read_text())
    changed["terms"]["server"]["address"] = "evil.example.org:443"
    path.write_text(json.dumps(changed))
    assert run(app, ["accept", "north.invite", "--data", "north.csv", "--fingerprint", words]).exit_code == 2


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"run": {"rounds": 30}}, False),
        ({"limits": {"runs": 11}}, False),
        ({"privacy": {"report_error": False}}, False),
        ({"server": {"address": "127.0.0.1:1"}}, False),
        ({"privacy": {"protect": "secure-sum"}}, False),
    ],
)
def test_only_announced_differences_need_no_further_consent(tmp_path, change, expected):
    file = found(tmp_path)
    _, _, reply = accepted(tmp_path, file)
    enrolment.admit_reply(file, reply)
    enrolment.agree_on_replies(file)
    content = dict(Terms.read(file).content)
    for section, entries in change.items():
        content[section] = {**content[section], **entries}
    enrolled = enrolment.Enrolled(tmp_path)
    assert enrolled.expected(Terms.of(content)) is expected
    stranger = {**content, "parties": {**content["parties"], "eve": {"key": "ssh-x eve"}}}
    assert not enrolled.expected(Terms.of(stranger))


def test_every_term_can_be_set_by_a_command(tmp_path):
    file = found(tmp_path, "limits.runs=3", "limits.until=2031-12-31", "policy.deadline=60", "algorithm.tol=1e-4")
    terms = Terms.read(file)
    assert terms.limits[0] == 3
    assert terms.limits[2] == "2031-12-31"
    assert terms.algorithm().tol == 1e-4
    assert setup.change(file, ["policy.minimum=0", "limits.keep=30"]).keep == 30
    for wrong in ("limits.runs", "limit.runs=3", "runs=3", "limits.walks=3", "limits.runs=many"):
        with pytest.raises((DataError, ValueError)):
            setup.change(file, [wrong])
    assert Terms.read(file).keep == 30
