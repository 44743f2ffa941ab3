"""The page 'Three hospitals in ten minutes': its commands, copied, give a running federation of three."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")

from fedfactor.federation import processes as children
from fedfactor.federation.setup import invent

pytestmark = [pytest.mark.integration, pytest.mark.federation, pytest.mark.slow]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "federation_of_three_hospitals.md"
STAYS = ("serve", "join")
PATIENCE = 600.0


def commands(page):
    """Yield who types what, in order, down to the results."""
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            typed = re.match(r"(\w+)\$ (.*)", line)
            if typed and not typed[2].startswith("pip "):
                yield typed[1], shlex.split(typed[2])


class People:
    """A coordinator and three hospitals, each with a folder of its own."""

    def __init__(self, root):
        self.folders = {name: root / name for name in ("coordinator", "north", "south", "west")}
        for folder in self.folders.values():
            folder.mkdir()
        for name, file in invent(root).items():
            shutil.move(file, self.folders[name])
        self.address = f"127.0.0.1:{children.free_port()}"
        self.running = []

    def types(self, who, words):
        """Run one command; what stays is left running, and asked questions are answered with yes."""
        if words[0] == "cd":
            self.folders[who] /= words[1]
            return ""
        words = [self.address if word == "fed.example.org:8000" else word for word in words]
        command = [sys.executable, "-m", *words]
        if words[1] in STAYS:
            with (self.folders[who] / f"{words[1]}.log").open("w") as log:
                child = subprocess.Popen(
                    command, cwd=self.folders[who], stdin=subprocess.PIPE, stdout=log, stderr=log, text=True
                )
            child.stdin.write("y\n")
            child.stdin.close()
            self.running.append(child)
            return self.reads(who, words[1], {"serve": "Serving 3 parties", "join": "Interrupt to leave"}[words[1]])
        done = subprocess.run(
            command, cwd=self.folders[who], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        away = 3 if words[1] == "status" else 0  # a party that has yet to connect
        assert done.returncode in (0, away), f"{shlex.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def reads(self, who, command, words):
        """Wait until a command that stays has said so."""
        end = time.monotonic() + PATIENCE
        while words not in (said := (self.folders[who] / f"{command}.log").read_text()):
            assert time.monotonic() < end, said
            assert self.running[-1].poll() is None, said
            time.sleep(0.2)
        return said

    def mails(self, sender, receiver, *names):
        for name in names:
            shutil.copy(self.folders[sender] / name, self.folders[receiver] / name)

    def go(self):
        for child in reversed(self.running):
            children.end(child, patience=30.0)


def test_the_commands_of_the_page(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(os.path.abspath(entry or ".") for entry in sys.path))
    people, said = People(tmp_path), {}
    hospitals = ("north", "south", "west")
    try:
        for who, words in commands(PAGE.read_text()):
            if words[1] == "status":
                end = time.monotonic() + PATIENCE
                while "finished" not in (seen := people.types(who, words)):
                    assert time.monotonic() < end, seen
                    time.sleep(2)
                continue
            if words == ["cd", "study"]:  # what hospitals send has to be where the coordinator goes next
                for name in hospitals:
                    people.mails(name, "coordinator", f"{name}.key.pub", f"{name}.features.json")
                    for sent in (f"{name}.key.pub", f"{name}.features.json"):
                        shutil.move(people.folders["coordinator"] / sent, people.folders["coordinator"] / "study")
            for name in hospitals if who == "north" else (who,):  # the page shows north; likewise at the others
                if name in hospitals and "federation.toml" in words:
                    people.mails("coordinator", name, "federation.toml")
                own = [word.replace("north", name) for word in words] if who == "north" else words
                said[(name, words[1])] = people.types(name, own)
        said[("coordinator", "results")] = people.types(
            "coordinator", "fedfactor results federation.toml -o result".split()
        )
    finally:
        people.go()
    assert "fingerprint" in said[("coordinator", "federation")]
    assert "Never a row" in said[("south", "join")]
    spoken = {name: re.search(r"In words +(.*)", said[(name, "join")])[1] for name in hospitals}
    assert len(set(spoken.values())) == 1
    assert len(spoken["north"].split()) == 12
    shared = {
        (people.folders[name] / "result" / "shared" / "components.safetensors").read_bytes() for name in people.folders
    }
    assert len(shared) == 1
    typed = [who for who, words in commands(PAGE.read_text()) if words[0] != "cd"]
    assert typed.count("coordinator") <= 7
    assert typed.count("north") <= 4
    records = {
        name: json.loads((people.folders[name] / "result" / "shared" / "run.json").read_bytes())
        for name in people.folders
    }
    assert 3 < records["coordinator"]["rounds"] <= 20  # it may converge before
    assert records["coordinator"]["relative_error"] < 0.6
    assert all((people.folders[name] / "result" / "private" / f"{name}.safetensors").exists() for name in hospitals)
