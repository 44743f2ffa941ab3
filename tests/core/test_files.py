"""A file is the old one or the new one, whatever happens to the writer."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedfactor.core import atomic_files as files
from fedfactor.core.atomic_files import private_folder, write_atomic

SIZE = 400_000
WRITER = f"""
import runpy, sys
write_atomic = runpy.run_path(sys.argv[2])["write_atomic"]  # the module alone: a fast start, thirty times
print("ready", flush=True)
letter = 0
while True:
    write_atomic(sys.argv[1], bytes([65 + letter % 26]) * {SIZE})
    letter += 1
"""


def test_content_and_permissions(tmp_path: Path) -> None:
    path = write_atomic(tmp_path / "a.bin", b"one")
    assert path.read_bytes() == b"one"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    write_atomic(path, b"two", mode=0o644)
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = write_atomic(tmp_path / "a.bin", b"old")
    with pytest.raises(TypeError):
        write_atomic(path, "text is not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "nowhere" / "a.bin", b"")


def test_long_names(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)
    assert write_atomic(path, b"x").read_bytes() == b"x"


def test_private_folder_is_tightened(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir(mode=0o755)
    assert stat.S_IMODE(private_folder(folder).stat().st_mode) == 0o700


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_killed_writers_never_leave_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "state.bin"
    seen = set()
    command = [sys.executable, "-c", WRITER, str(path), files.__file__]
    environment = os.environ | {"PYTHONPATH": str(Path(files.__file__).parents[2])}
    for attempt in range(30):
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        assert writer.stdout is not None
        writer.stdout.readline()
        # Another moment of the write each time; longer while a busy machine has not let any writer finish a file.
        time.sleep(0.002 + 0.0013 * attempt + (0 if seen else 0.03 * attempt))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        if path.exists():
            content = path.read_bytes()
            assert len(content) == SIZE
            assert len(set(content)) == 1
            seen.add(content[:1])
    assert seen, "no writer got as far as its first file: the test proves nothing"
