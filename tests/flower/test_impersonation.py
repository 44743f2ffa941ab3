"""Nodes of one Flower federation that want to answer as one of its parties: none is ever asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedfactor.federation.processes import free_port
from fedfactor.flower.signatures import is_signed, sign, statement
from tests.flower.deployment import APP, FLOWERS, Processes, factors_of, wait_for_end
from tests.flower.test_deployment import PARTIES, far_from, local

EVE = Path(__file__).parent / "eve_app"


def test_a_signature_counts_for_one_run_one_node_one_question_and_one_answer():
    from cryptography.hazmat.primitives import serialization as ser
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(ser.Encoding.PEM, ser.PublicFormat.SubjectPublicKeyInfo)
    said = (1, 2, b"question", b"answer")
    signature = sign(key, statement(*said))
    assert is_signed(public, signature, statement(*said))
    for other in ((9, 2, *said[2:]), (1, 9, *said[2:]), (1, 2, b"x", b"answer"), (1, 2, b"question", b"x"),
                  (1, 2, b"questiona", b"nswer")):  # fmt: skip
        assert not is_signed(public, signature, statement(*other))
    for odd in (b"", b"x" * 1000, signature[:-1]):
        assert not is_signed(public, odd, statement(*said))


@pytest.mark.integration
@pytest.mark.federation
@pytest.mark.slow
@pytest.mark.parametrize("flower", FLOWERS, ids=lambda path: path.name)
def test_no_node_answers_for_a_party_without_its_key(tmp_path, flower):
    processes, folder, data = Processes(tmp_path, flower), tmp_path / "federation", APP / "data"
    attacks = (EVE / "app.py").read_text().split("ATTACKS = (")[1].split(")")[0].count(",")
    try:
        processes.connect(processes.superlink(free_port(), "--insecure", "--simulation"), None)
        processes.flwr_run(f"folder='{folder}' data='{data}'", app=EVE, simulation=3 + attacks)
        status = wait_for_end(processes, folder)
        assert status["state"] == "finished", (status, processes.said_all())
    finally:
        processes.close()
    tried = {tuple(json.loads(line)) for line in (folder / "attacks.jsonl").read_text().splitlines()}
    assert len(tried) == attacks == 9
    assert {kind for _, kind in tried} == {"identify"}  # they are asked who they are, and nothing else
    assert status["rejected"] == {}
    run = local({name: data / f"{name}.csv" for name in PARTIES}, 3)
    assert far_from(factors_of(folder, PARTIES), run) <= 1e-12
