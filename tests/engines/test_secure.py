"""Secure sums over messages."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor import algorithms
from fedfactor.core.algorithm import Meta, Score
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.wire import Leaf, from_bytes
from fedfactor.network.client import COLUMNS, REFUSAL, RemoteClient
from fedfactor.network.client_storage import ClientFolder
from fedfactor.network.exchange import Arrival, NotEnough
from fedfactor.network.message_format import Head, read_head, seal
from fedfactor.network.secure_aggregation import Ready, collect, counts_messages
from fedfactor.privacy.secure_aggregation.phases import Begin, Keys, Masked, Signatures
from tests.network.in_process import TERMS, Office

pytest.importorskip("cryptography")
rng = np.random.default_rng(0)
X = rng.gamma(0.5, 1.0, (360, 4)) @ rng.gamma(0.6, 1.0, (4, 12))
OWNERS = {"north": X[:100], "south": X[100:220], "west": X[220:]}
ALGORITHM = algorithms.PooledNMF(3, tol=0.0)


def office(folder, owners=OWNERS, rounds=3, **more):
    return Office(folder, ALGORITHM, owners, rounds=rounds, protect="secure-sum", report_score=False, **more)


def reasons(folder, name):
    return " ".join(line.get("reason", "") for line in ClientFolder(folder / name).sent())


@pytest.mark.slow
def test_the_bits_are_those_of_the_local_secure_sum(tmp_path):
    made = office(tmp_path)
    outcome = made.server(dropouts="wait").run()
    assert len(outcome.history) == 3
    assert not outcome.rejected
    run = fedfactor.run(
        ALGORITHM, OWNERS, rounds=3, seed=5, privacy="secure-sum", engine=fedfactor.LocalEngine(workers=2)
    )
    for name in OWNERS:
        np.testing.assert_array_equal(made.factors(name).V, run.factors[name].V)
        np.testing.assert_array_equal(made.factors(name).U, run.factors[name].U)


@pytest.mark.slow
def test_the_server_is_never_sent_an_upload_in_the_clear(tmp_path):
    made = office(tmp_path)
    answers = []
    made.post.tamper = lambda name, answer: answers.append(answer) or [Arrival(name, answer)]
    made.server(dropouts="wait").run()
    kinds = {type(from_bytes(answer)).__name__ for answer in answers}
    assert kinds == {"Ready", "Keys", "Sealed", "Begin", "Masked", "Signatures", "Opened", "Ask"}
    words = np.concatenate([from_bytes(a).words for a in answers if isinstance(from_bytes(a), Masked)])
    # Masked words are uniform: their top bytes fill all 256 values alike.
    counts = np.bincount((words >> np.uint64(56)).astype(int), minlength=256)
    expected = words.size / 256
    assert ((counts - expected) ** 2 / expected).sum() < 400


@pytest.mark.slow
def test_a_party_lost_in_the_middle_of_a_sum_comes_back_and_the_bits_are_the_same(tmp_path):
    plain = office(tmp_path / "plain")
    plain.server(dropouts="wait").run()
    made = office(tmp_path / "lost")
    lost = []

    def tamper(name, answer):
        head = read_head(answer)
        phase = type(from_bytes(answer)) if head.kind != "refusal" else None
        if name == "south" and head.index == 1 and phase in (Keys, Masked, Signatures) and phase not in lost:
            lost.append(phase)
            made.clerks["south"] = RemoteClient(
                ClientFolder(tmp_path / "lost" / "south")
            )  # a new process, with empty memory
            made.post.here["south"] = str(len(lost) + 1)
            return []
        return [Arrival(name, answer)]

    made.post.tamper = tamper
    outcome = made.server(dropouts="wait").run()
    assert len(lost) == 3
    # Before it had masked anything it could simply begin anew; afterwards the sum had to.
    assert outcome.rejected["refused south"] == 2
    for name in OWNERS:
        np.testing.assert_array_equal(made.factors(name).V, plain.factors(name).V)


@pytest.mark.slow
def test_a_server_killed_in_the_middle_of_a_sum_goes_on_with_the_same_bits(tmp_path):
    plain = office(tmp_path / "plain")
    plain.server(dropouts="wait").run()
    for when in (5, 12, 17, 23, 33):
        made = office(tmp_path / str(when))
        made.run_with_a_server_killed_at(when)
        np.testing.assert_array_equal(made.factors("west").V, plain.factors("west").V)


def test_a_false_key_in_between_is_noticed(tmp_path):
    made = office(tmp_path)

    def tamper(name, answer):
        tree = from_bytes(answer) if read_head(answer).kind != "refusal" else None
        if isinstance(tree, Keys) and name == "west":  # the server puts a key of its own in place of the party's
            tree = Keys(np.ones(32, np.uint8), tree.mask, tree.signature)
            return [Arrival(name, seal(read_head(answer), tree))]
        return [Arrival(name, answer)]

    made.post.tamper = tamper
    with pytest.raises(NotEnough, match=REFUSAL):
        made.server(dropouts="wait").run()
    assert "not signed by 'west'" in reasons(tmp_path, "north")


@pytest.mark.slow
def test_parties_that_were_sent_different_factors_are_not_in_one_sum(tmp_path):
    """Otherwise a server could silence all but one with an empty V, and read that one's upload from the sum."""
    made = office(tmp_path)

    def forge(name, data):
        head = read_head(data)
        if name == "west" or head.kind != "step" or head.index != 2:
            return data
        tree = from_bytes(data)
        return seal(head, type(tree)(np.zeros_like(tree.V)))

    made.post.forge = forge
    with pytest.raises(NotEnough, match=REFUSAL):
        made.server(dropouts="wait").run()
    assert "not signed by" in reasons(tmp_path, "north") + reasons(tmp_path, "west")


@pytest.mark.slow
def test_parties_that_were_told_different_columns_are_not_in_one_sum(tmp_path):
    made = office(tmp_path, least=(5, 2))

    def forge(name, data):
        head = read_head(data)
        if name != "west" or head.kind != "survey" or head.index != 1:
            return data
        tree = from_bytes(data)
        clients = tree.clients.copy()
        clients[3] = 1  # so that one party leaves out a column which the others send
        return seal(head, type(tree)(tree.rows, clients))

    made.post.forge = forge
    with pytest.raises(NotEnough, match=REFUSAL):
        made.server(dropouts="wait").run()
    assert "not signed by" in reasons(tmp_path, "north") + reasons(tmp_path, "west")


@pytest.mark.parametrize("odd", [-1.0, 0.5])
def test_totals_that_are_no_counts_are_refused(tmp_path, odd):
    made = office(tmp_path)

    def forge(name, data):
        head = read_head(data)
        if name != "west" or head.kind != "survey" or head.index != 1:
            return data
        tree = from_bytes(data)
        return seal(head, type(tree)(tree.rows * 0 + odd, tree.clients))

    made.post.forge = forge
    with pytest.raises(NotEnough, match=REFUSAL):
        made.server(dropouts="wait").run()
    assert "are no counts" in reasons(tmp_path, "west")


@pytest.mark.slow
def test_masks_and_keys_of_two_tries_have_nothing_in_common(tmp_path):
    made, said = office(tmp_path, rounds=1), {}

    def tamper(name, answer):
        head = read_head(answer)
        tree = from_bytes(answer) if head.kind == "sum" else None
        if name == "west" and isinstance(tree, Keys | Masked):
            said.setdefault((head.index, type(tree)), []).append(tree)
        first = len(said.get((0, Masked), [])) == 2  # the survey's and the first of the round
        if name == "west" and isinstance(tree, Signatures) and first and "lost" not in said:
            said["lost"] = []
            made.clerks["west"] = RemoteClient(ClientFolder(tmp_path / "west"))
            made.post.here["west"] = "2"
            return []
        return [Arrival(name, answer)]

    made.post.tamper = tamper
    made.server(dropouts="wait").run()
    masked = [tree.words for tree in said[0, Masked]][1:]
    assert len(masked) == 2  # one upload, sent under masks twice
    assert not (masked[0] == masked[1]).any()
    assert len({tree.mask.tobytes() for tree in said[0, Keys]}) == len(said[0, Keys])


@pytest.mark.slow
def test_a_step_never_answers_with_more_than_that_it_is_done(tmp_path):
    made = office(tmp_path)
    made.server(dropouts="wait").run()
    clerk = made.clerks["north"]
    message = next(data for name, data in made.post.messages if name == "north" and read_head(data).kind == "step")
    for session in (0, 12345):
        plain = Head("step", f"run-{session}", 0, "north", TERMS, session=session, participants=tuple(OWNERS))
        assert type(from_bytes(clerk.answer(seal(plain, from_bytes(message))))).__name__ == "Ready"
    for down in (Begin(np.float64(0)), Begin(np.float64(1)), Signatures(np.zeros((3, 64), np.uint8))):
        answer = read_head(clerk.answer(seal(Head("sum", "no-run", 0, "north", TERMS, session=7), down)))
        assert answer.kind == "refusal"


@pytest.mark.slow
def test_a_party_that_lost_its_folder_refuses_until_columns_are_counted_again(tmp_path):
    made = office(tmp_path)
    made.server(dropouts="wait").run()
    message = next(data for name, data in made.post.messages if name == "north" and read_head(data).kind == "step")
    for name in ("state.safetensors", COLUMNS):
        (tmp_path / "north" / name).unlink()
    answer = read_head(RemoteClient(ClientFolder(tmp_path / "north")).answer(message))
    assert answer.kind == "refusal"
    assert "the columns were never agreed on" in reasons(tmp_path, "north")


@pytest.mark.slow
def test_rare_columns_are_left_out_by_everybody(tmp_path):
    owners = {name: rows.copy() for name, rows in OWNERS.items()}
    for rows in owners.values():
        rows[:, 7] = 0
    owners["north"][3, 7] = 5.0  # one row of one party
    made = office(tmp_path, owners, least=(5, 2))
    made.server(dropouts="wait").run()
    assert not made.factors("south").V[:, 7].any()
    without = {name: np.where(np.arange(12) == 7, 0.0, rows) for name, rows in owners.items()}
    run = fedfactor.run(
        ALGORITHM, without, rounds=3, seed=5, privacy="secure-sum", engine=fedfactor.LocalEngine(workers=2)
    )
    np.testing.assert_array_equal(made.factors("south").V, run.V)


def test_what_must_be_seen_cannot_be_summed_in_secret(tmp_path):
    with pytest.raises(IncompatibleError, match="must see each"):
        Office(tmp_path, algorithms.FNMF(3), OWNERS, protect="secure-sum")


@pytest.mark.parametrize("kinds", [(0, 1), (2, 2), (-1, -1)])
def test_uploads_of_unlike_or_unknown_kinds_have_no_sum(kinds):
    class Answers:
        def ask(self, head, messages, expected, since):
            return {name: Ready(np.int64(kind), np.zeros(0, np.int64)) for name, kind in zip("ab", kinds, strict=True)}

    meta, one = Meta(3, ("a", "b")), Begin(np.float64(0))
    expected = counts_messages(meta) | {Score: {"sse": Leaf("float64", ())}}  # two kinds of upload
    with pytest.raises(NotEnough, match="different kinds"):
        collect(Answers(), meta, Head("step", "run", 0, "", TERMS), dict.fromkeys("ab", one), expected, {})
