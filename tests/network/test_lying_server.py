"""A server that lies: what it may send, what it is told, and how often."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from fedfactor import algorithms
from fedfactor.core.algorithm import Meta
from fedfactor.core.hash_chain import ChainError
from fedfactor.core.wire import from_bytes, to_bytes
from fedfactor.network.answer_limits import AnsweredCounts, LimitError
from fedfactor.network.client import BROKEN, COLUMNS, REFUSAL, RemoteClient
from fedfactor.network.client_storage import ClientFolder
from fedfactor.network.exchange import NotEnough
from fedfactor.network.message_format import Head, read_head, seal
from fedfactor.network.verified_messages import octets
from tests.network.in_process import TERMS, Office

pytest.importorskip("cryptography")
rng = np.random.default_rng(0)
X = (rng.random((360, 10)) < 0.3) * 1.0
OWNERS = {"north": X[:120], "south": X[120:240], "west": X[240:]}
ALGORITHM = algorithms.PooledNMF(2, tol=0.0, start="random")
FACTOR = next(kind for kind in ALGORITHM.messages(Meta(10, ("a",))) if kind.__name__ == "Factor")


def office(folder, owners=OWNERS, algorithm=ALGORITHM, **more):
    return Office(folder, algorithm, owners, rounds=4, protect="secure-sum", report_score=False, **more)


def message(kind, down, index=0, run="r1", session=0):
    everybody = tuple(OWNERS) if kind == "step" else ()
    return seal(Head(kind, run, index, "north", TERMS, session=session, participants=everybody), down)


def factor(V):
    return FACTOR(np.asarray(V, float))


@pytest.mark.slow
def test_too_large_uploads_are_cut_and_the_run_goes_on(tmp_path):
    made = office(tmp_path, {**OWNERS, "south": 1e150 * OWNERS["south"]})
    outcome = made.server(dropouts="wait").run()
    assert len(outcome.history) == 4
    assert not outcome.rejected


@pytest.mark.slow
def test_a_failure_on_protected_rows_is_the_last_word_of_its_run(tmp_path, monkeypatch):
    made = office(tmp_path)
    calls = []

    def broken(*_):
        calls.append(1)
        raise FloatingPointError("row 17")

    monkeypatch.setattr("fedfactor.engines.client_step.step", broken)
    with pytest.raises(NotEnough):
        made.server(dropouts="wait").run()
    run, before = (tmp_path / "north" / BROKEN).read_text(), len(calls)
    down = factor(np.eye(10)[:2])
    for index in range(4):
        clerk = RemoteClient(ClientFolder(tmp_path / "north"))
        assert read_head(clerk.answer(message("step", down, index, run))).reason == REFUSAL
    assert len(calls) == before  # rows were not touched again


E = np.eye(10)
REFUSED = {
    "negative": np.stack([E[0] - 50 * E[3], E[1]]),
    "tiny": 1e-9 * E[:2],
    "long": 7 * E[:2],
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_V_that_no_honest_server_sends_is_refused_before_rows_are_touched(tmp_path, monkeypatch, name):
    clerk = Office(tmp_path, ALGORITHM, OWNERS).clerks["north"]
    touched = []
    monkeypatch.setattr("fedfactor.engines.client_step.begin", lambda *_: touched.append(1))
    answer = read_head(clerk.answer(message("step", factor(REFUSED[name]))))
    assert (answer.kind, answer.reason) == ("refusal", REFUSAL)
    assert "no honest server sends this" in ClientFolder(tmp_path / "north").sent()[-1]["reason"]
    assert not touched


def test_patterns_cannot_be_counted_with_negative_cells(tmp_path):
    """Rows with column 0 and without column 3 were counted exactly by V = e0 − 50 e3: each answers with a 1."""
    made = office(tmp_path)
    pattern = np.stack([E[0] - 50 * E[3], E[5]])

    def forge(name, data):
        head = read_head(data)
        if head.kind != "step" or head.index:
            return data
        return seal(head, replace(from_bytes(data), down=octets(to_bytes(factor(pattern)))))

    made.post.forge = forge
    with pytest.raises(NotEnough, match=REFUSAL):
        made.server(dropouts="wait").run()
    assert not any((tmp_path / name / "state.safetensors").exists() and _step(tmp_path / name) for name in OWNERS)


def _step(folder):
    return ClientFolder(folder).load().head.kind == "step"


HONEST = {
    "PooledNMF": (algorithms.PooledNMF(2, tol=0.0), X + 0.1),
    "PooledNMF counts": (algorithms.PooledNMF(2, loss="kullback-leibler", tol=0.0), X + 1),
    "PooledBMF": (algorithms.PooledBMF(2), X),
    "FELB": (algorithms.FELB(2), X),
    "FedAvgNMF": (algorithms.FedAvgNMF(2), X + 0.1),
    "FedProxNMF": (algorithms.FedProxNMF(2), X + 0.1),
    "DistributedNMF": (algorithms.DistributedNMF(2), X + 0.1),
}


@pytest.mark.slow
@pytest.mark.parametrize("payload", ["exact", "float16"])
@pytest.mark.parametrize("name", HONEST)
def test_what_honest_servers_send_is_accepted(tmp_path, name, payload):
    algorithm, rows = HONEST[name]
    owners = {"a": rows[:120], "b": rows[120:240], "c": rows[240:]}
    outcome = Office(tmp_path, algorithm, owners, rounds=12, payload=payload).server().run()
    assert not outcome.rejected


# ------------------------------------------------------------------------------------------------------------ limits
def again(made, folder):
    """Start another run, as a server does that has forgotten the last one."""
    import shutil

    shutil.rmtree(folder / "server")
    return made.server(dropouts="wait").run()


@pytest.mark.slow
def test_runs_and_rounds_are_counted_at_the_party(tmp_path):
    made = office(tmp_path, limits=(2, 0, ""))
    made.server(dropouts="wait").run()
    again(made, tmp_path)
    made = office(tmp_path, limits=(2, 0, ""))  # new processes, the same folders
    for name in OWNERS:
        (tmp_path / name / "state.safetensors").unlink()
    with pytest.raises(NotEnough, match=REFUSAL):
        again(made, tmp_path)
    store = ClientFolder(tmp_path / "north")
    assert "2 runs were agreed on" in store.sent()[-1]["reason"]
    assert "0 of 2 runs" in store.left()


def test_rounds_are_counted_over_all_runs_and_the_same_question_once(tmp_path):
    asked = AnsweredCounts(tmp_path, "rows", (0, 3, ""))
    for _ in range(5):
        asked.count("a", "step", 0, "t", b"question")
    with pytest.raises(LimitError, match="that answer is gone"):
        asked.count("a", "step", 0, "t", b"another question")
    asked.count("a", "step", 1, "t")
    with pytest.raises(LimitError, match="that answer is gone"):  # another was answered since
        asked.count("a", "step", 0, "t", b"question")
    asked.count("b", "step", 0, "t")
    asked.count("a", "end", 2, "t")
    with pytest.raises(LimitError, match="3 rounds"):
        AnsweredCounts(tmp_path, "rows", (0, 3, "")).count("b", "step", 1, "t")
    AnsweredCounts(tmp_path, "other rows", (0, 3, "")).count("b", "step", 1, "t")
    with pytest.raises(LimitError, match="last day"):
        AnsweredCounts(tmp_path, "rows", (0, 0, "2020-01-01")).count("a", "step", 0, "t")


@pytest.mark.parametrize("how", ["middle", "last", "edited", "all", "head"])
def test_lines_of_the_count_that_vanish_or_change_are_noticed(tmp_path, how):
    asked = AnsweredCounts(tmp_path, "rows", (0, 9, ""))
    for index in range(4):
        asked.count("a", "step", index, "t")
    file, head = tmp_path / "asked.jsonl", tmp_path / "asked.jsonl.head"
    lines = file.read_bytes().splitlines(keepends=True)
    kept = {"middle": lines[:1] + lines[2:], "last": lines[:-1], "all": [], "head": lines,
            "edited": [lines[0].replace(b'"index": 0', b'"index": 7'), *lines[1:]]}[how]  # fmt: skip
    file.write_bytes(b"".join(kept))
    if how == "head":
        head.unlink()
    with pytest.raises(ChainError, match="was changed, or is damaged"):
        asked.so_far()
    with pytest.raises(ChainError):
        asked.count("a", "step", 5, "t")


def test_a_line_torn_by_a_power_cut_is_not_held_against_anybody(tmp_path):
    asked = AnsweredCounts(tmp_path, "rows", (0, 9, ""))
    asked.count("a", "step", 0, "t")
    with (tmp_path / "asked.jsonl").open("ab") as file:
        file.write(b'{"before": "ab')
    asked.count("a", "step", 1, "t")
    assert len(asked.so_far()[1]) == 2
    head = (tmp_path / "asked.jsonl.head").read_bytes()
    asked.count("a", "step", 2, "t")
    (tmp_path / "asked.jsonl.head").write_bytes(head)  # killed between the line and the count of it
    asked.count("a", "step", 3, "t")
    assert len(asked.so_far()[1]) == 4


# ------------------------------------------------------------------------------------------------------- bits that flip
@pytest.mark.slow
@pytest.mark.parametrize("file", ["state.safetensors", COLUMNS, "data/X.npy", "data/about.json"])
def test_a_flipped_bit_in_a_partys_files_is_never_used(tmp_path, file):
    """Of 500 single flips in the state 401 were used in silence, in the rows 489."""
    made = Office(tmp_path, ALGORITHM, OWNERS, rounds=4, survey="scale", report_score=False)
    made.server(dropouts="wait").run()
    path, message_of = tmp_path / "north" / file, made.post.messages[-1][1]
    data, flips = path.read_bytes(), np.random.default_rng(1)
    question = replace(read_head(message_of), client="north", run="another")
    first = {"kind": "step", "index": 0, "participants": tuple(OWNERS)}
    down = factor(np.eye(10)[:2])
    for _ in range(120):
        bit = int(flips.integers(8 * len(data)))
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        store = ClientFolder(tmp_path / "north")
        answer = RemoteClient(store).answer(seal(replace(question, **first), down))
        assert read_head(answer).kind == "refusal", bit
        assert "its checksum is wrong" in store.sent()[-1]["reason"]
    path.write_bytes(data)
    assert from_bytes(RemoteClient(ClientFolder(tmp_path / "north")).answer(
        seal(replace(question, **first), down))) is not None  # fmt: skip


@pytest.mark.parametrize("name", ["../../stolen", "..", "/tmp/stolen", "a/b", "a\\b", "a\x00b", "r" * 65, "ü"])
def test_the_name_of_a_run_leads_nowhere(tmp_path, name):
    """A party keeps the results of each run under its name: this one moved U, the party's own, to any other place."""
    made = Office(tmp_path / "all" / "here", ALGORITHM, OWNERS)
    clerk, down = made.clerks["north"], factor(np.eye(10)[:2])
    for run in (name, "next"):
        answer = read_head(clerk.answer(message("end", down, 1, run)))
        assert answer.kind == ("refusal" if run == name else "end")
    assert "the name of a run" in ClientFolder(tmp_path / "all" / "here" / "north").sent()[0]["reason"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all"]
    assert not (tmp_path / "all" / "here" / "north" / "runs").exists()


@pytest.mark.slow
def test_an_agreement_cannot_name_code(tmp_path, monkeypatch):
    from fedfactor.cli import app
    from tests.command_line import CliRunner

    made = Office(tmp_path / "all", ALGORITHM, OWNERS)
    made.server().run()
    folder = tmp_path / "all" / "north"
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass A: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    raw = json.loads((folder / "agreement.json").read_bytes()) | {"format": 2}  # which had no checksum
    del raw["sha256"]
    for tag in ("evil_module:A", "subprocess:call", "fedfactor.algorithm_names:algorithm_class", "os:system"):
        for place in (folder, folder / "result"):  # a result keeps the agreement that it was made under
            (place / "agreement.json").write_text(json.dumps({**raw, "algorithm": tag, "settings": {}}))
        said = CliRunner().invoke(app, ["results", str(folder), "-o", str(tmp_path / "out")])
        assert said.exit_code == 2, said.output
        assert "not an algorithm of fedfactor" in said.output
        with pytest.raises(ValueError, match="not an algorithm"):
            RemoteClient(ClientFolder(folder))
    assert not (tmp_path / "ran").exists()
