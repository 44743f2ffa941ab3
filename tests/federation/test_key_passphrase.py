"""Private keys that are encrypted with a passphrase: made, used by a real party, and refused without it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("bcrypt")

from fedfactor.cli import app
from fedfactor.core.errors import DataError
from fedfactor.federation import keys
from fedfactor.network.key_file import PASSPHRASE_FILE, load_private_key
from tests.command_line import CliRunner
from tests.network.https_world import heads, world


def secret(tmp_path, monkeypatch, text="correct horse"):
    file = tmp_path / "passphrase"
    file.write_text(text + "\n")
    file.chmod(0o600)
    monkeypatch.setenv(PASSPHRASE_FILE, str(file))
    return file


def test_a_key_with_a_passphrase_is_read_with_it_alone(tmp_path, monkeypatch):
    file = secret(tmp_path, monkeypatch)
    path = tmp_path / "north.key"
    said = CliRunner().invoke(app, ["keygen", "north", "--out", str(path), "--passphrase"])
    assert said.exit_code == 0, said.output
    assert path.stat().st_mode & 0o777 == 0o600
    assert keys.line_of_private(path) == keys.public_line(f"{path}.pub")
    public = keys.Identity(keys.identity_secret(path)).public.hex()
    assert public == keys.signing_key(f"{path}.pub")
    file.write_text("wrong\n")
    os.utime(path, (1, 1))  # another file: nothing of the one before is remembered
    with pytest.raises(DataError, match=r"cannot be decrypted.*Is the passphrase right"):
        load_private_key(path)
    monkeypatch.delenv(PASSPHRASE_FILE)
    with pytest.raises(DataError, match=f"no terminal.*{PASSPHRASE_FILE}"):
        load_private_key(path)


def test_an_empty_passphrase_writes_no_key(tmp_path, monkeypatch):
    secret(tmp_path, monkeypatch, "")
    said = CliRunner().invoke(app, ["keygen", "north", "--out", str(tmp_path / "north.key"), "--passphrase"])
    assert said.exit_code == 2
    assert "holds no passphrase" in said.output
    assert not (tmp_path / "north.key").exists()


def test_a_party_connects_with_an_encrypted_key(tmp_path, monkeypatch):
    pytest.importorskip("aiohttp")
    secret(tmp_path, monkeypatch)
    with world(tmp_path / "w") as served:
        for name in ("north.key", "north.key.pub"):
            (served.folder / name).rename(served.folder / f"plain {name}")
        keys.make_key(served.key("north"), "north", b"correct horse")
        assert served.ask("north", headers=heads())[0] != 200  # another key than the registered one
        plain = load_private_key(served.folder / "plain north.key")
        from cryptography.hazmat.primitives import serialization as ser

        hidden = ser.BestAvailableEncryption(b"correct horse")
        served.key("north").write_bytes(plain.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.OpenSSH, hidden))
        assert served.ask("north", headers=heads())[0] in (200, 204)


def test_a_command_without_a_terminal_says_where_the_passphrase_belongs(tmp_path, monkeypatch):
    keys.make_key(tmp_path / "north.key", "north", b"correct horse")
    monkeypatch.delenv(PASSPHRASE_FILE, raising=False)
    command = [sys.executable, "-m", "fedfactor", "federation", "request", str(tmp_path / "north.key")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert PASSPHRASE_FILE in done.stderr


def test_a_second_key_of_a_party_is_offered_another_file(tmp_path):
    path = keys.make_key(tmp_path / "west.key", "west")
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"fedfactor keygen west --out .*west-2\.key"):
        keys.make_key(path, "west")
    assert path.read_bytes() == before
