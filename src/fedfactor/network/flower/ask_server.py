"""Ask a server, as a party, whether it knows this party's key, and under which terms and with what it serves."""

from __future__ import annotations

import json
from typing import Any

import httpx

from fedfactor.network.flower.superlink import KNOCK
from fedfactor.network.mailbox.proof import Signer


def knock(address: str, authority: str, key: bytes, timeout: float = 10.0) -> dict[str, Any]:
    """Knock with a signed request that has no body and changes nothing; return what the server tells.

    Parameters
    ----------
    address : str
        Host and port.
    authority : str
        Certificate of the server's authority, as PEM.
    key : bytes
        The party's private key, in OpenSSH's format.

    Raises
    ------
    httpx.HTTPError
        The server is away, or turns the key away; its text says why.
    """
    import ssl

    context = ssl.create_default_context(cadata=authority)
    with httpx.Client(verify=context, timeout=timeout) as client:
        answer = client.post(f"https://{address}{KNOCK}", headers=Signer(key).head())
    try:
        told: dict[str, Any] = json.loads(answer.text)
    except ValueError:
        told = {}
    if answer.status_code != 200:
        raise httpx.HTTPError(str(told.get("detail", f"HTTP {answer.status_code}")))
    return told
