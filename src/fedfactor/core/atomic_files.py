"""Files that are either the old one or the new one, never half of each."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

__all__ = ["alone_with", "private_folder", "read_json", "write_atomic"]


def write_atomic(path: str | os.PathLike[str], data: bytes | bytearray | memoryview, mode: int = 0o600) -> Path:
    """Replace a file in one step, so that a crash leaves the old content or the new one.

    The bytes go to a temporary file in the same folder, are flushed to the disk, and only then take the name.

    Parameters
    ----------
    path : path
        The file to write. Its folder must exist.
    data : bytes
        The whole content.
    mode : int, default=0o600
        Permission bits of the result, whatever the umask: what a party computes from its rows is its own unless
        the caller requests otherwise.

    Returns
    -------
    Path
        The file written.

    Notes
    -----
    A writer killed before the last step leaves a hidden ``.<name>.*.part`` file behind. It is never read, and can be
    deleted when no writer is at work.

    Examples
    --------
    >>> import tempfile
    >>> from fedfactor.core.atomic_files import write_atomic
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomic(f"{folder}/note.txt", b"whole").read_bytes()
    b'whole'
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:80]}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    _sync_folder(path.parent)
    return path


def private_folder(path: str | os.PathLike[str]) -> Path:
    """Make a folder that only its owner may enter (mode 0700), or tighten one that is there already.

    Parameters
    ----------
    path : path
        The folder. Missing parents are made with the usual permissions.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> import tempfile
    >>> from fedfactor.core.atomic_files import private_folder
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     oct(private_folder(f"{folder}/private").stat().st_mode & 0o777)
    '0o700'
    """
    path = Path(path)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def _sync_folder(folder: Path) -> None:
    # The rename itself lives in the folder: without this, a power cut may bring the old name back. Some file systems
    # (and Windows) cannot open a folder for it; the file's own content is safe there all the same.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_json(path: str | os.PathLike[str], remedy: str = "Write it again.") -> Any:
    """Read a JSON file; whatever is wrong with it is a mistake in data, with the file's name and the place.

    Parameters
    ----------
    path : path
        The file.
    remedy : str
        What to do when it cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     read_json(write_atomic(f"{folder}/a.json", b'["x", 1]'))
    ['x', 1]
    """
    from fedfactor.core.errors import DataError  # here, so that this module can be run alone

    path = Path(path)
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path} is not there. {remedy}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). {remedy}") from None
    except RecursionError:
        raise DataError(f"{path} is nested too deeply to be read. {remedy}") from None
    except ValueError as error:  # JSON's own, and text that is no UTF-8
        raise DataError(f"{path} is not JSON ({error}). {remedy}") from None


@contextlib.contextmanager
def alone_with(path: Path) -> Generator[None, None, None]:
    """Keep other processes that want the same file waiting, where the system has file locks."""
    handle = os.open(path.with_name(path.name + ".lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
