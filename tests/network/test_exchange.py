"""A question on its way: who is asked, who is waited for, and what of that which comes is taken in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedfactor.core.pytree import Array, record
from fedfactor.core.wire import Leaf
from fedfactor.network.backoff import Backoff
from fedfactor.network.exchange import Arrival, Exchange, NotEnough, Tally
from fedfactor.network.message_format import Head, read_head, seal
from fedfactor.network.waiting_rules import WaitingRules


@record
class Word:
    x: Array


EXPECTED = {Word: {"x": Leaf("float64", ())}}
HEAD = Head("step", "run", 3, "", "terms", session=2)
QUESTION = Word(np.float64(1))


class Script:
    """A transport and a clock: what comes is written down for each look."""

    def __init__(self, *looks, there=("a", "b")):
        self.looks, self.there = list(looks), {name: "1" for name in there}
        self.sent, self.now, self.slept = [], 0.0, []

    def present(self):
        return dict(self.there)

    def send(self, messages, most):
        self.sent.append([(name, read_head(data)) for name, data in messages])

    def collect(self):
        look = self.looks.pop(0) if self.looks else []
        return look() if callable(look) else look

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += 10.0


def answer(name, value=2.0, **change):
    return Arrival(name, seal(replace(HEAD, client=name, **change), Word(np.float64(value))))


def refused(name, **change):
    return Arrival(name, seal(replace(HEAD, client=name, kind="refusal", reason="no", **change)))


def exchange(script, minimum=2, **rules):
    rules = WaitingRules(minimum, **{"deadline": 100.0, "gather": 30.0, "resend": 25.0, "absent": 15.0, **rules})
    return Exchange(script, rules, Tally(), clock=lambda: script.now, sleep=script.sleep)


def asked(script, names="ab", since=None, **rules):
    ex = exchange(script, **rules)
    return ex, ex.ask(HEAD, {name: QUESTION for name in names}, EXPECTED, since=since)


def test_rules_unless_said_otherwise():
    rules = WaitingRules(3)
    assert (rules.dropouts, rules.deadline, rules.gather) == ("continue", 600.0, 600.0)
    assert (rules.resend, rules.absent, rules.poll) == (60.0, 60.0, 0.2)
    assert Backoff(1.0).next() == 0.05
    assert Backoff(0.01).next() == 0.01


def test_answers_come_back_in_name_order_and_bytes_are_counted():
    script = Script([answer("b", 3.0)], [answer("a")])
    ex, found = asked(script)
    assert list(found) == ["a", "b"]
    assert float(found["b"].x) == 3.0
    assert [name for name, _ in script.sent[0]] == ["a", "b"]
    up, down = ex.take_bytes()
    assert up == len(answer("a").data) + len(answer("b").data)
    assert down > 0
    assert ex.take_bytes() == (0, 0)
    assert ex.left_out == {}


def test_who_is_not_there_is_asked_when_it_comes_and_again_when_it_came_back():
    script = Script([answer("a")], [], [], [answer("b")], there=("a",))
    script.looks[1] = lambda: script.there.update(b="1") or []
    script.looks[2] = lambda: script.there.update(b="2") or []
    asked(script)
    assert [[(name, head.attempt) for name, head in batch] for batch in script.sent] == [
        [("a", 0)],
        [("b", 0)],
        [("b", 1)],
    ]


def test_who_is_silent_for_long_is_asked_again():
    script = Script([], [], [], [], [answer("a"), answer("b")])
    asked(script)
    assert [[head.attempt for _, head in batch] for batch in script.sent] == [[0, 0], [1, 1]]
    assert script.sent[0][0][1].since == -1


def test_a_failure_is_asked_again_at_the_next_look():
    script = Script([Arrival("a", failure="lost"), answer("b")], [answer("a")])
    ex, found = asked(script)
    assert list(found) == ["a", "b"]
    assert ex.tally.rejected["failed a"] == 1
    assert [name for name, _ in script.sent[1]] == ["a"]
    assert ex.tally.reasons == {}  # it answered in the end


@pytest.mark.parametrize(
    ("came", "kind"),
    [
        (lambda: answer("x"), "unknown x"), (lambda: answer("a", run="other"), "foreign a"),
        (lambda: answer("a", terms="other"), "foreign a"), (lambda: answer("a", index=2), "stale a"),
        (lambda: answer("a", index=4), "early a"), (lambda: answer("a", kind="end"), "stale a"),
        (lambda: answer("a", session=1), "stale a"), (lambda: answer("a", attempt=1), "unasked a"),
        (lambda: answer("a", since=1), "unasked a"), (lambda: Arrival("a", b"noise"), "malformed a"),
        (lambda: refused("a"), "refused a"), (lambda: refused("a", terms="other"), "refused a"),
        (lambda: replace(answer("b"), client="a"), "foreign a"),
    ],
)  # fmt: skip
def test_what_is_not_the_answer_is_counted(came, kind):
    script = Script([came(), answer("b")], [answer("a")])
    ex = exchange(script, minimum=1, deadline=15.0)
    found = ex.ask(HEAD, {"a": QUESTION, "b": QUESTION}, EXPECTED)
    assert ex.tally.rejected[kind] == 1
    assert ex.tally.rejected[kind.split()[0]] == 1
    ended = kind.split()[0] in ("malformed", "refused")
    assert list(found) == (["b"] if ended else ["a", "b"])
    assert ("a" in ex.left_out) == (kind == "malformed a")


def test_the_first_answer_counts_and_since_is_that_of_each_client():
    script = Script([answer("a", 1.0, since=2), answer("a", 9.0, since=2)], [answer("b")])
    ex, found = asked(script, since={"a": 2})
    assert float(found["a"].x) == 1.0
    assert ex.tally.rejected["duplicate a"] == 1
    assert [head.since for _, head in script.sent[0]] == [2, -1]


class TestTime:
    def test_is_up_at_the_deadline_and_enough_is_enough(self):
        script = Script([answer("a")])
        _, found = asked(script, minimum=1, absent=1e9)
        assert list(found) == ["a"]
        assert script.now == 100.0

    def test_too_few_end_the_round_with_their_names(self):
        script = Script([answer("a"), refused("b")])
        with pytest.raises(NotEnough, match=r"step 3 got 1 answers, but 2 are needed \(b: no\)"):
            asked(script)
        with pytest.raises(NotEnough, match=r"but all 2 are needed \(b: no answer\)"):
            asked(Script([answer("a")]), minimum=1, dropouts="wait")

    def test_those_who_are_gone_are_not_waited_for(self):
        script = Script([answer("a")])
        script.looks.append(lambda: script.there.pop("b") and [])
        _, found = asked(script, minimum=1)
        assert list(found) == ["a"]
        assert script.now == 20.0  # gone since the beginning, and 15 s are allowed

    def test_those_who_were_removed_neither(self):
        script = Script([answer("a")])
        ex = exchange(script, minimum=1)
        ex.removed = lambda: ("b",)
        assert list(ex.ask(HEAD, {"a": QUESTION, "b": QUESTION}, EXPECTED)) == ["a"]
        assert script.now == 0.0

    def test_where_all_must_stay_nobody_is_given_up(self):
        script = Script([answer("a")], *[[]] * 5, [answer("b")])
        script.looks[1] = lambda: script.there.pop("b") and []
        script.looks[5] = lambda: script.there.update(b="1") or []
        _, found = asked(script, dropouts="wait")
        assert list(found) == ["a", "b"]


class TestGather:
    def test_waits_until_everybody_is_there(self):
        script, told = Script(there=("a",)), []
        ex = exchange(script)
        ex.tick = lambda about: told.append(about["present"]) or (len(told) == 2 and script.there.update(b="1"))
        ex.gather(["a", "b"])
        assert told == [["a"], ["a"], ["a", "b"]]
        assert script.slept == [1.0, 1.0]

    def test_ends_when_enough_came_in_time_or_says_who_is_missing(self):
        exchange(Script(there=("a",)), minimum=1).gather(["a", "b"])
        with pytest.raises(NotEnough, match=r"1 of 2 clients came in 30 s; missing: b\."):
            exchange(Script(there=("a",)), minimum=2).gather(["a", "b"])
        with pytest.raises(NotEnough):
            exchange(Script(there=("a",)), minimum=1, dropouts="wait").gather(["a", "b"])

    def test_does_not_wait_for_who_was_removed(self):
        script = Script(there=("a",))
        ex = exchange(script)
        ex.removed = lambda: ("b",)
        ex.gather(["a", "b"])
        assert script.now == 0.0
