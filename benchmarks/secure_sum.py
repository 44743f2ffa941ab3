"""What a secure sum costs: verified (every party checks the total) against the one with shares, and against plain.

Ratios, bytes and numbers of exchanges; seconds are processor time of a party and its share of the coordinator.
Run: python -m benchmarks.secure_sum [parties ...]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fedfactor.core.entropy import Entropy
from fedfactor.privacy.secure_aggregation.field_tags import accumulate
from fedfactor.privacy.secure_aggregation.masked_sum import SecureClient, SecureServer
from fedfactor.privacy.secure_aggregation.primitives import Identity
from fedfactor.privacy.secure_aggregation.verified import Context, Member, Total, carry_dtype, label_of

WORDS = 50 * 5000 + 50 * 50
"""Numbers of an upload of PooledNMF at rank 50 with 5,000 columns."""


def plain(values: dict[str, np.ndarray]) -> dict[str, Any]:
    """Add uploads in the clear."""
    began = time.process_time()
    total = np.zeros(WORDS, np.uint64)
    for words in values.values():
        total += words
    took = time.process_time() - began
    return {"seconds": took, "exchanges": 1, "up": 8 * WORDS, "down": 0, "total": total}


def with_shares(values: dict[str, np.ndarray]) -> dict[str, Any]:
    """Add uploads under masks that shares of secrets take off: keys, shares, masked words, signatures, shares."""
    names = sorted(values)
    identities = {name: Identity() for name in names}
    known = {name: identity.public for name, identity in identities.items()}
    clients = {name: SecureClient(name, identities[name], known, 3, Entropy()) for name in names}
    about = (b"run", 0, names, len(names), (WORDS, 0))
    began = time.process_time()
    adverts = {name: client.advertise(*about) for name, client in clients.items()}
    sealed = {name: client.share(adverts) for name, client in clients.items()}
    server = SecureServer(*about)
    server.register(adverts, sealed)
    for name, client in clients.items():
        server.take(name, client.mask({by: sealed[by][name] for by in names if by != name}, values[name]))
    listed = server.listed()
    signatures = {name: clients[name].agree(listed) for name in listed}
    total = server.total({name: clients[name].unmask(listed, [], signatures) for name in listed})
    took = time.process_time() - began
    n = len(names)
    up = 128 + 148 * n + 8 * WORDS + 64 + 66 * n
    return {"seconds": took, "exchanges": 6, "up": up, "down": (128 + 148 + 1 + 64) * n, "total": total}


def verified(values: dict[str, np.ndarray]) -> dict[str, Any]:
    """Add uploads under masks, and let every party check the total; keys are exchanged once a run, and not timed."""
    names = sorted(values)
    identities = {name: Identity() for name in names}
    known = {name: identity.public for name, identity in identities.items()}
    context = Context("federation", "t" * 64, "run", 0, known)
    members = {name: Member(context, name, identities[name], Entropy().take(32)) for name in names}
    adverts = {name: member.advert for name, member in members.items()}
    for member in members.values():
        member.meet(adverts)
    label = label_of(members[names[0]].transcript, "step", 0, b"question", b"layout")
    began = time.process_time()
    masked = {name: member.mask(label, values[name], 0) for name, member in members.items()}
    commitments = {name: member.commit(label, masked[name]) for name, member in members.items()}
    words, carries = np.zeros(WORDS, np.uint64), np.zeros(WORDS, carry_dtype(len(names)))
    for name in names:
        accumulate(words, carries, masked[name])
    total = Total(commitments, words, carries)
    tags = {name: member.tag(label, masked[name], total) for name, member in members.items()}
    for member in members.values():
        member.check(label, total, tags)
    took = time.process_time() - began
    n, up = len(names), 8 * WORDS + 32 + 64 + 16 + 64
    down = (8 + carries.itemsize) * WORDS + (32 + 64 + 16 + 64) * n
    return {"seconds": took, "exchanges": 2, "up": up, "down": down, "total": total.decoded(0)}


def compare(parties: int, repeats: int = 3) -> dict[str, Any]:
    """Return what each way costs for so many parties, and the ratios to the sum with shares."""
    values = {f"p{i:03d}": Entropy().words(WORDS) for i in range(parties)}
    ways: dict[str, Callable[[dict[str, np.ndarray]], dict[str, Any]]] = {
        "plain": plain, "with_shares": with_shares, "verified": verified,
    }  # fmt: skip
    found: dict[str, Any] = {"parties": parties, "words": WORDS}
    for name, way in ways.items():
        runs = [way(values) for _ in range(repeats)]
        assert all(np.array_equal(run["total"], sum(values.values())) for run in runs)
        best = min(runs, key=lambda run: run["seconds"])
        found[name] = {key: best[key] for key in ("seconds", "exchanges", "up", "down")}
        found[name]["seconds"] /= parties
    for part in ("seconds", "up"):
        found[f"{part}_to_shares"] = found["verified"][part] / found["with_shares"][part]
    return found


if __name__ == "__main__":
    for count in [int(word) for word in sys.argv[1:]] or [3, 20, 100]:
        print(json.dumps(compare(count, 3 if count < 50 else 1)), flush=True)
