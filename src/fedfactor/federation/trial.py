"""A whole federation on one machine, with the processes, certificates and keys of a real one."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from fedfactor.core.atomic_files import private_folder
from fedfactor.federation import certificates, keys, terms_writer
from fedfactor.federation import processes as children
from fedfactor.federation.coordinator import Coordinator
from fedfactor.federation.features import agree, column_names
from fedfactor.federation.fingerprint_words import terms_words
from fedfactor.federation.processes import ChildError
from fedfactor.federation.terms import DEFAULTS, features_hash


class Trial:
    """Coordinator and parties, each with its own folder under one root.

    Parameters
    ----------
    root : path
        Where everything is put.
    files : mapping of party to data file
    changes : mapping of section to entries
        What differs from the usual terms.
    """

    def __init__(
        self, root: str | Path, files: Mapping[str, str | Path], changes: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self.root = private_folder(root)
        self.files = {name: Path(file).resolve() for name, file in files.items()}
        self.members: dict[str, subprocess.Popen[bytes]] = {}
        self.server: subprocess.Popen[bytes] | None = None
        content: dict[str, Any] = copy.deepcopy(DEFAULTS)
        content["server"]["address"] = f"127.0.0.1:{children.free_port()}"
        authority = certificates.make_authority(self.root / "server", "trial")
        certificates.make_server_certificate(self.root / "server", ["127.0.0.1"])
        content["server"]["certificate"] = authority.read_text()
        content["federation"] |= {"name": "trial", "purpose": "to see how it works", "contact": "yourself"}
        if "features" not in (changes or {}):
            names = agree({name: column_names(file) for name, file in self.files.items()})
            content["features"] |= {"names": list(names), "sha256": features_hash(names)}
        for section, entries in (changes or {}).items():
            content[section] = {**content[section], **entries}
        content["parties"] = {name: self._key(name) for name in self.files}
        self.toml = self.root / "federation.toml"
        self.terms = terms_writer.save(self.toml, content)
        self.coordinator = Coordinator(self.toml)

    def _key(self, name: str) -> dict[str, str]:
        path = self.root / f"{name}.key"
        if not path.exists():
            keys.make_key(path, name)
        return {"key": keys.public_line(f"{path}.pub"), "sign": keys.signing_key(f"{path}.pub")}

    def folder(self, name: str) -> Path:
        """One party's own folder."""
        return self.root / name

    def join(self, name: str, *more: str) -> subprocess.Popen[bytes]:
        """Start one party's ``fedfactor join`` in a process of its own."""
        return self.join_together([name], *more)

    def join_together(self, names: Sequence[str], *more: str) -> subprocess.Popen[bytes]:
        """Start the ``fedfactor join`` of several parties in one process, each with its own key and folder."""
        command = [
            sys.executable,
            "-m",
            "fedfactor",
            "join",
            str(self.toml),
            "--yes",
            "--fingerprint",
            terms_words(self.terms.fingerprint),
            *more,
        ]
        for name in names:
            command += ["--data", str(self.files[name]), "--key", str(self.root / f"{name}.key")]
            command += ["--folder", str(private_folder(self.folder(name)))]
        log = self.folder(names[0]) / "join.log"
        child = self.members[names[0]] = children.start(command, log, {"PYTHONPATH": os.pathsep.join(_path())})
        return child

    def serve(self, *more: str, patience: float = 120.0) -> subprocess.Popen[bytes]:
        """Start ``fedfactor serve`` in a process of its own; returns when parties can connect."""
        command = [sys.executable, "-m", "fedfactor", "serve", str(self.toml), *more]
        log = self.root / "serve.log"
        child = self.server = children.start(command, log, {"PYTHONPATH": os.pathsep.join(_path())})
        end = time.monotonic() + patience
        while not self.coordinator.ready:
            if child.poll() is not None or time.monotonic() > end:
                children.heard(child)
                raise ChildError(f"The server did not start. {log} says:\n{children.tail(log)}")
            time.sleep(0.05)
        return child

    def end_server(self) -> None:
        """End the server as an operator would."""
        if self.server is not None:
            children.end(self.server, patience=30.0)
            self.server = None

    def __enter__(self) -> Trial:
        self.serve()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self.members.values():
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
        for child in self.members.values():
            children.end(child, patience=20.0)
        self.end_server()


def _path() -> list[str]:
    return [os.path.abspath(entry or ".") for entry in sys.path if entry != ""]
