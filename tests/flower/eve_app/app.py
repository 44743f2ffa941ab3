"""Three honest clients, and nodes beyond them that want to be one of them."""

from __future__ import annotations

import json
import pickle
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fedfactor.federation import terms_writer
from fedfactor.federation.party import Member
from fedfactor.federation.terms import Terms
from fedfactor.flower import answer, server_app
from fedfactor.flower.party import Party
from fedfactor.flower.records import Envelope, from_record, to_record
from fedfactor.flower.signatures import load_key, sign, statement

__all__ = ["client_app", "server_app"]

client_app = ClientApp()


def _said(folder):
    return json.dumps({"party": "north", "terms": Terms.read(folder / "federation.toml").fingerprint}).encode()


def _signed(key, message, asked, said, node=None):
    about = message.metadata
    signature = sign(key, statement(about.run_id, node or about.dst_node_id, asked.data, said))
    return to_record(Envelope(asked.kind, said, signature))


def unsigned(message, asked, folder, data):
    return to_record(Envelope("identify", _said(folder)))


def with_the_key_of_another_party(message, asked, folder, data):
    return _signed(load_key(folder / "south.key"), message, asked, _said(folder))


def with_an_unknown_key(message, asked, folder, data):
    return _signed(ec.generate_private_key(ec.SECP384R1()), message, asked, _said(folder))


def signed_for_another_node(message, asked, folder, data):
    return _signed(load_key(folder / "north.key"), message, asked, _said(folder), node=1)


def replayed(message, asked, folder, data):
    while not (folder / "tapped").exists():
        time.sleep(0.1)
    kind, said, signature = pickle.loads((folder / "tapped").read_bytes())
    return to_record(Envelope(kind, said, signature))


def relayed_to_another_coordinators_federation(message, asked, folder, data):
    """The party itself answers, and signs with its key, but under the terms of another federation."""
    elsewhere, toml = folder / "elsewhere", folder / "elsewhere.toml"
    if not toml.exists():
        content = Terms.read(folder / "federation.toml").content
        terms_writer.save(toml, {**content, "run": {**content["run"], "rounds": 4}})
        Member(toml, folder / "north.key", elsewhere).sign_up(data / "north.csv", confirmed=True)
    party = Party(elsewhere, folder / "north.key")
    said = party.answer(asked.kind, asked.data)
    about = message.metadata
    signature = party.sign(about.run_id, about.dst_node_id, asked.data, said)
    return to_record(Envelope(asked.kind, said, signature))


def with_a_pickle_as_array(message, asked, folder, data):
    array = Array(dtype="object", shape=(1,), stype="numpy.ndarray", data=pickle.dumps(_said(folder)))
    values = ConfigRecord({"kind": "identify", "signature": b""})
    return RecordDict({"fedfactor": values, "fedfactor.message": ArrayRecord({"fedfactor.message": array})})


def with_records_too_many(message, asked, folder, data):
    honest = _signed(load_key(folder / "north.key"), message, asked, _said(folder))
    honest["more"] = ConfigRecord({"kind": "identify"})
    return honest


def with_json_that_is_none(message, asked, folder, data):
    return _signed(load_key(folder / "north.key"), message, asked, b"[" * 100_000)


ATTACKS = (
    unsigned, with_the_key_of_another_party, with_an_unknown_key, signed_for_another_node, replayed,
    relayed_to_another_coordinators_federation, with_a_pickle_as_array, with_records_too_many, with_json_that_is_none,
)  # fmt: skip


@client_app.query()
def _answer(message, context):
    partition = int(context.node_config["partition-id"])
    folder, data = (Path(str(context.run_config[name])) for name in ("folder", "data"))
    asked = from_record(message.content)
    if partition >= 3:
        attack = ATTACKS[partition - 3]
        with (folder / "attacks.jsonl").open("a") as log:
            log.write(json.dumps([attack.__name__, asked.kind]) + "\n")
        return Message(attack(message, asked, folder, data), reply_to=message)
    reply = answer(message, context)
    if partition == 0 and asked.kind == "identify":
        told = from_record(reply.content)
        (folder / "tapping").write_bytes(pickle.dumps((told.kind, told.data, told.signature)))
        (folder / "tapping").rename(folder / "tapped")
    elif asked.kind == "message":
        while not (folder / "attacks.jsonl").exists() or _tried(folder) < len(ATTACKS):
            time.sleep(0.1)  # the run does not end before each was tried
    return reply


def _tried(folder):
    return len({line for line in (folder / "attacks.jsonl").read_text().splitlines() if line.endswith("]")})
