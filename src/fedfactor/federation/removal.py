"""A party leaves and takes its part out: when a refit may be made, and a certificate of what was done."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.errors import DataError, FedfactorError
from fedfactor.engines.capabilities import SupportsWarmStart
from fedfactor.federation.model_versions import SHOWN, versions
from fedfactor.federation.terms import Terms
from fedfactor.network.coordinator_journal import Journal

__all__ = ["check_certificate", "refuse_refit", "write_certificate"]


def refuse_refit(terms: Terms, folder: Path) -> None:
    """Reject a refit that would show what the leaving party sent, and one that has nothing to start at."""
    if not terms.consents_to_removal:
        raise DataError(SHOWN)
    if terms.noise:
        raise DataError(
            "Noise protects a run, and a start at components that rows have shaped is not covered by ε. Remove the "
            "party without --refit: the remaining parties run from the beginning, within their budgets."
        )
    algorithm = terms.algorithm()
    if not isinstance(algorithm, SupportsWarmStart):
        raise DataError(
            f"{type(algorithm).__name__} has no start at earlier components. Remove the party without --refit, and let "
            "the remaining parties run from the beginning."
        )
    if not any(version.components for version in versions(folder)):
        raise DataError(f"{folder} holds no finished run to start at. Remove the party without --refit.")


def write_certificate(file: Path, name: str, before: Terms, after: Terms, folder: Path, *, refit: bool) -> Path:
    """Write what the coordinator did when a party left, signed with the key of its server certificate.

    Parameters
    ----------
    file : path
        JSON: the statement, and its signature by the server's key.
    name : str
        The party.
    before, after : Terms
        The agreements with and without it.
    folder : path
        The server's folder.
    refit : bool
        Whether the remaining parties are to run again.

    Returns
    -------
    Path
    """
    took_part = [version for version in versions(folder) if name in version.parties]
    journal = Journal(folder).lines()
    seen = "each upload of this party" if not before.secure else "sums of all parties, which contain its uploads"
    statement: dict[str, Any] = {
        "party": name,
        "federation": before.content["federation"]["name"],
        "id": before.id,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "terms_before": before.fingerprint,
        "terms_after": after.fingerprint,
        "done": [
            "The party's key is refused from now on.",
            *(["The remaining parties were asked to run again without its rows."] if refit else []),
        ],
        "runs_with_its_rows": [version.run for version in took_part],
        "components_with_its_rows": [version.components for version in took_part if version.components],
        "cannot_be_unsent": [
            f"The coordinator received {seen} in {len(took_part)} finished runs; copies that were made are not known "
            "here.",
            "Every party and the coordinator received the components of these runs, which its rows have shaped.",
            *(
                ["The refit starts at such components: within its tolerance it forgets them, but not to the last bit."]
                if refit
                else []
            ),
            *(
                ["The sums before and after its removal differ by its own uploads, as all parties had agreed."]
                if refit and before.secure
                else []
            ),
        ],
        "journal_lines": len(journal),
    }
    signed = {"statement": statement, "signature": _key(folder).sign(_bytes(statement), *_how()).hex()}
    return write_atomic(file, (json.dumps(signed, indent=1, ensure_ascii=False) + "\n").encode(), mode=0o644)


def check_certificate(file: Path, server_certificate: Path) -> dict[str, Any]:
    """Return the statement of a certificate of removal whose signature the server's certificate verifies."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.x509 import load_pem_x509_certificate

    try:
        signed = json.loads(file.read_bytes())
        public: Any = load_pem_x509_certificate(server_certificate.read_bytes()).public_key()
        public.verify(bytes.fromhex(signed["signature"]), _bytes(signed["statement"]), *_how())
    except (InvalidSignature, KeyError, TypeError, ValueError) as error:
        raise FedfactorError(
            f"{file} is not signed by the key of {server_certificate} ({type(error).__name__}). Ask the coordinator "
            "for both files."
        ) from None
    return signed["statement"]


def _bytes(statement: dict[str, Any]) -> bytes:
    return json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _key(folder: Path) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    return load_pem_private_key((folder / "server.key").read_bytes(), None)


def _how() -> tuple[Any, ...]:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    return (ec.ECDSA(hashes.SHA256()),)
