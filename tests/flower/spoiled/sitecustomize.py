"""Spoils the parties of a test, as the environment says: bad uploads, or hostile answers."""

import os

BAD, HOSTILE = (os.environ.get(f"FEDFACTOR_TEST_{name}", "") for name in ("BAD", "HOSTILE"))

if os.path.exists(BAD):  # a JSON file: in which round which party uploads what
    import json

    from fedfactor.algorithms import PooledNMF
    from tests.engines.bad_uploads import spoiled

    with open(BAD) as file:
        PooledNMF.client_step = spoiled(PooledNMF.client_step, json.load(file))

if HOSTILE:  # the name of a party that answers each round after the first in another hostile way
    from fedfactor.network.client import RemoteClient
    from fedfactor.network.message_format import read_head
    from tests.network.hostile import KINDS

    honest, kinds = RemoteClient.answer, list(KINDS.values())

    def answer(self, data):
        good = honest(self, data)
        head = read_head(good)
        attack = self.agreement.name == HOSTILE and head.kind == "step" and 0 < head.index <= len(kinds)
        return kinds[head.index - 1](good) if attack else good

    RemoteClient.answer = answer
