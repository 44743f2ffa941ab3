"""Verified secure aggregation over messages: bits, faults, kills, and messages that no honest coordinator sends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedfactor
from fedfactor import algorithms
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.wire import from_bytes, to_bytes
from fedfactor.network.client import COLUMNS, REFUSAL, RemoteClient
from fedfactor.network.client_storage import ClientFolder
from fedfactor.network.exchange import Arrival, NotEnough
from fedfactor.network.message_format import Head, read_head, seal
from fedfactor.network.verified_messages import Key, Masked, Meet, Question, Shown, Tagged, octets
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
    assert kinds == {"Key", "Masked", "Tagged", "Begin", "Ask"}
    words = np.concatenate([from_bytes(a).words for a in answers if isinstance(from_bytes(a), Masked)])
    # Masked words are uniform: their top bytes fill all 256 values alike.
    counts = np.bincount((words >> np.uint64(56)).astype(int), minlength=256)
    expected = words.size / 256
    assert ((counts - expected) ** 2 / expected).sum() < 400


@pytest.mark.slow
def test_a_party_killed_in_any_phase_comes_back_and_the_bits_are_the_same(tmp_path):
    plain = office(tmp_path / "plain")
    plain.server(dropouts="wait").run()
    made, lost, given = office(tmp_path / "lost"), [], {}

    def tamper(name, answer):
        head = read_head(answer)
        place = (head.kind, head.index)
        if name == "south" and head.kind != "refusal":
            assert given.setdefault((*place, head.session), answer) == answer  # never a second answer
        if name == "south" and place not in lost:
            lost.append(place)
            # A new process, with empty memory.
            made.clerks["south"] = RemoteClient(ClientFolder(tmp_path / "lost" / "south"))
            made.post.here["south"] = str(len(lost) + 1)
            return []
        return [Arrival(name, answer)]

    made.post.tamper = tamper
    outcome = made.server(dropouts="wait").run()
    assert len(lost) == 1 + 2 + 1 + 2 * 3 + 1 - 1  # the sums of survey and step 0 have one number
    assert not outcome.rejected
    for name in OWNERS:
        np.testing.assert_array_equal(made.factors(name).V, plain.factors(name).V)


@pytest.mark.slow
def test_a_server_killed_at_any_message_goes_on_with_the_same_bits(tmp_path):
    plain = office(tmp_path / "plain")
    plain.server(dropouts="wait").run()
    assert len(plain.post.messages) == 3 * (1 + 3 + 2 * 3 + 1)  # keys; survey; two exchanges a round; the end
    for when in range(1, len(plain.post.messages), 4):
        made = office(tmp_path / str(when))
        made.run_with_a_server_killed_at(when)
        np.testing.assert_array_equal(made.factors("west").V, plain.factors("west").V)


def test_a_false_key_in_between_is_noticed(tmp_path):
    made = office(tmp_path)

    def tamper(name, answer):
        tree = from_bytes(answer) if read_head(answer).kind != "refusal" else None
        if isinstance(tree, Key) and name == "west":  # the server puts a key of its own in place of the party's
            tree = Key(np.ones(32, np.uint8), tree.signature)
            return [Arrival(name, seal(read_head(answer), tree))]
        return [Arrival(name, answer)]

    made.post.tamper = tamper
    with pytest.raises(NotEnough, match=REFUSAL):
        made.server(dropouts="wait").run()
    assert "not signed by 'west'" in reasons(tmp_path, "north")


def altered(data, change):
    """Change what a question asks, and leave all else as it is."""
    question = from_bytes(data)
    return seal(read_head(data), replace(question, down=octets(to_bytes(change(from_bytes(question.down.tobytes()))))))


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 2])
def test_a_false_question_is_refused_and_changes_nothing(tmp_path, index):
    plain = office(tmp_path / "plain")
    plain.server(dropouts="wait").run()
    made = office(tmp_path / "made")

    def forge(name, data):
        head = read_head(data)
        if name == "west" or (head.kind, head.index) != ("step", index):
            return data
        return altered(data, lambda down: replace(down, V=np.ascontiguousarray(down.V[::-1])))

    made.post.forge = forge
    with pytest.raises(NotEnough, match=REFUSAL):
        made.server(dropouts="wait").run()
    assert "is not what follows from the totals" in reasons(tmp_path / "made", "north")
    made.post.forge = None
    made.server(dropouts="wait").run()  # honest again
    np.testing.assert_array_equal(made.factors("west").V, plain.factors("west").V)


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["fewer", -1.0, 0.5])
def test_false_totals_of_columns_are_refused(tmp_path, odd):
    made = office(tmp_path, least=(5, 2))

    def change(down):
        if odd == "fewer":  # so that one party leaves out a column which the others send
            clients = down.clients.copy()
            clients[3] = 1
            return replace(down, clients=clients)
        return replace(down, rows=down.rows * 0 + odd)

    def forge(name, data):
        head = read_head(data)
        return altered(data, change) if name == "west" and (head.kind, head.index) == ("survey", 1) else data

    made.post.forge = forge
    with pytest.raises(NotEnough, match=REFUSAL):
        made.server(dropouts="wait").run()
    assert "not those that were verified" in reasons(tmp_path, "west")


@pytest.mark.slow
@pytest.mark.parametrize("whom", [{"west"}, {"north", "south", "west"}])
@pytest.mark.parametrize("part", ["words", "carries", "digests", "signatures"])
def test_a_false_total_is_refused(tmp_path, part, whom):
    """Whether one party is shown it or all are: then the tags do not add up, and no next question is answered."""
    made = office(tmp_path)

    def forge(name, data):
        head = read_head(data)
        if head.kind != "sum" or head.index != 1 or name not in whom:
            return data
        shown = from_bytes(data)
        false = getattr(shown, part).copy()
        false.reshape(-1)[0] ^= 1
        return seal(head, replace(shown, **{part: false}))

    made.post.forge = forge
    with pytest.raises(NotEnough):
        made.server(dropouts="wait").run()
    told = " ".join(reasons(tmp_path, name) for name in OWNERS)
    assert part in ("words", "carries") or "VerificationError" in told
    assert max(ClientFolder(tmp_path / name).load().head.index for name in OWNERS) == 1


@pytest.mark.slow
def test_false_tags_are_refused_with_the_next_question(tmp_path):
    made = office(tmp_path)

    def forge(name, data):
        head = read_head(data)
        if (head.kind, head.index) not in (("step", 2), ("end", 3)):
            return data
        question = from_bytes(data)
        return seal(head, replace(question, tags=question.tags[::-1].copy()))

    made.post.forge = forge
    with pytest.raises(NotEnough, match=REFUSAL):
        made.server(dropouts="wait").run()
    assert "VerificationError" in reasons(tmp_path, "south")


@pytest.mark.slow
def test_the_last_sum_is_verified_too_and_the_end_follows_from_it(tmp_path):
    made = office(tmp_path)

    def forge(name, data):
        if read_head(data).kind != "end" or name != "west":
            return data
        return altered(data, lambda down: replace(down, V=np.ascontiguousarray(down.V[::-1])))

    made.post.forge = forge
    made.server(dropouts="continue", minimum=2).run()
    assert "is not what follows from the totals" in reasons(tmp_path, "west")
    assert not (tmp_path / "west" / "result").exists()


@pytest.mark.slow
def test_masks_and_keys_of_two_runs_have_nothing_in_common(tmp_path):
    made, said = office(tmp_path, rounds=1), {}

    def tamper(name, answer):
        tree = from_bytes(answer) if read_head(answer).kind != "refusal" else None
        if name == "west" and isinstance(tree, Key | Masked):
            said.setdefault(type(tree), []).append(tree)
        return [Arrival(name, answer)]

    made.post.tamper = tamper
    made.server(dropouts="wait").run()
    import shutil

    shutil.rmtree(tmp_path / "server")
    made.server(dropouts="wait").run()
    counts, first, again, second = said[Masked]
    for one, other in ((counts, again), (first, second)):  # one upload, sent under masks twice
        assert not (one.words == other.words).any()
    assert not np.array_equal(said[Key][0].key, said[Key][1].key)


@pytest.mark.slow
def test_a_party_answers_nothing_out_of_order_or_twice(tmp_path):
    made = office(tmp_path)
    made.server(dropouts="wait").run()
    clerk, sent = made.clerks["north"], [data for name, data in made.post.messages if name == "north"]
    for data in sent[:-1]:  # the run has ended: nothing of it is answered again, but for its end
        assert read_head(clerk.answer(data)).reason == REFUSAL
    assert read_head(clerk.answer(sent[-1])).kind == "end"
    for data in sent:  # nor in a run that the party does not know
        head = replace(read_head(data), run="another")
        told = read_head(clerk.answer(seal(head, from_bytes(data))))
        assert told.kind == ("meet" if head.kind == "meet" else "refusal")
    other = read_head(clerk.answer(sent[0]))
    assert other.reason == REFUSAL
    assert "what it kept of it is gone" in reasons(tmp_path, "north")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Question, Shown])
def test_one_label_has_one_answer(tmp_path, kind):
    """Asked again, a party sends the same bytes; asked something else under the same label, nothing."""
    made, seen = office(tmp_path), []

    def forge(name, data):
        head = read_head(data)
        tree = from_bytes(data)
        if name == "north" and isinstance(tree, kind) and head.index == 1 and head.kind != "survey":
            first, again = (made.clerks[name].answer(data) for _ in range(2))
            seen.append(first == again)
            if kind is Question:
                tiny = altered(data, lambda down: replace(down, V=np.nextafter(down.V, 1)))  # within the tolerance
            else:
                tiny = seal(head, replace(tree, words=tree.words + np.uint64(1)))
            seen.append(read_head(made.clerks[name].answer(tiny)).reason)
        return data

    made.post.forge = forge
    made.server(dropouts="wait").run()
    assert seen == [True, REFUSAL]
    why = reasons(tmp_path, "north")
    assert "one label has one answer" in why or "one sum has one total" in why


@pytest.mark.slow
def test_alternating_runs_get_no_second_answer(tmp_path):
    made = office(tmp_path)
    first, refused = made.server(dropouts="wait"), []

    def forge(name, data):
        head = read_head(data)
        if head.kind == "step" and head.index == 1 and name == "north" and not refused:
            clerk = made.clerks[name]
            meet = Head("meet", "second", 0, name, TERMS)
            assert read_head(clerk.answer(seal(meet, Meet(np.int64(0))))).kind == "meet"  # its run is replaced
            refused.append(read_head(clerk.answer(data)).reason)
            refused.append(read_head(clerk.answer(seal(replace(meet, run=head.run), Meet(np.int64(0))))).reason)
        return data

    made.post.forge = forge
    with pytest.raises(NotEnough, match=REFUSAL):
        first.run()
    assert refused == [REFUSAL, REFUSAL]


@pytest.mark.slow
def test_a_party_that_lost_its_state_takes_no_further_part_in_that_run(tmp_path):
    made = office(tmp_path)

    def forge(name, data):
        if read_head(data).index == 1 and read_head(data).kind == "step":
            for file in ("state.safetensors", COLUMNS):
                (tmp_path / "north" / file).unlink(missing_ok=True)
        return data

    made.post.forge = forge
    with pytest.raises(NotEnough, match=REFUSAL):
        made.server(dropouts="wait").run()
    assert "is gone or was never made" in reasons(tmp_path, "north")


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


@pytest.mark.slow
def test_uploads_of_unlike_forms_have_no_sum(tmp_path):
    made = office(tmp_path)

    def tamper(name, answer):
        tree = from_bytes(answer) if read_head(answer).kind == "step" else None
        if name == "west" and isinstance(tree, Masked):
            return [Arrival(name, seal(read_head(answer), replace(tree, sizes=tree.sizes[::-1].copy())))]
        return [Arrival(name, answer)]

    made.post.tamper = tamper
    with pytest.raises(NotEnough, match="different forms"):
        made.server(dropouts="wait").run()


@pytest.mark.slow
def test_a_party_that_sends_false_tags_stops_the_run(tmp_path):
    made = office(tmp_path)

    def tamper(name, answer):
        tree = from_bytes(answer) if read_head(answer).kind == "sum" else None
        if name == "west" and isinstance(tree, Tagged):
            return [Arrival(name, seal(read_head(answer), replace(tree, tags=tree.tags ^ np.uint64(1))))]
        return [Arrival(name, answer)]

    made.post.tamper = tamper
    with pytest.raises(NotEnough, match=r"cannot be verified.*'west'"):
        made.server(dropouts="wait").run()
