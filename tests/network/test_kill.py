"""A run killed at random moments goes on as if nothing had happened; thirty kills are in claims/kill_resume.py."""

from __future__ import annotations

import functools
import signal
from collections import defaultdict

import numpy as np
import pytest

from claims import _flower as real
from claims._kill import killed_until_done, undisturbed
from fedfactor.core.wire import from_bytes
from fedfactor.federation.party import Member
from fedfactor.federation.trial import Trial
from fedfactor.network.client_storage import ClientFolder

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9"),
]


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_three_kills_and_a_resumption_give_the_bits_of_an_undisturbed_run(tmp_path, backend):
    whole, seconds = undisturbed("PooledNMF")
    found = killed_until_done(tmp_path / "run", "PooledNMF", kills=3, seed=8, seconds=seconds, backend=backend)
    assert found["result"] == whole
    assert found["kills"] > 0, "no run was killed: the test proves nothing"
    assert found["in_mid_run"] > 0, f"no kill fell between two rounds: {found}"
    assert found["unreadable"] == 0
    assert found["steps_back"] == 0


# Places in the code at which a role dies, for each question of verified aggregation: exchange A is "step", exchange B
# is "sum". Every place is reached once, by one party after the other.
ASKED = ("received", "counted", "paid", "saving", "saved", "answered")
SHOWN = ("received", "saving", "saved", "answered")
ROUNDS = 2


def party_deaths(protect):
    places = {"meet 0": SHOWN, "end 2": ASKED}
    if protect == "secure-sum":
        places |= {"survey 0": ASKED, "survey sum 0": SHOWN, "survey 1": ASKED}
    moments = [(question, place) for question, found in places.items() for place in found]
    for index in range(ROUNDS):
        moments += [(f"step {index}", place) for place in ASKED[3 * index : 3 * index + 3]]
        moments += [(f"sum {index}", place) for place in SHOWN[2 * index : 2 * index + 2]]
    return [f"{real.PARTIES[at % 3]} {question} {place}" for at, (question, place) in enumerate(moments)]


SERVER_DEATHS = [
    f"coordinator {moment}"
    for moment in (
        "meet 0 asked", "step 0 asking", "step 0 asked", "sum 0 asked", "sum 0 keeping tags", "sum 0 tags kept",
        "sum 0 server step", "sum 0 server step taken", "sum 1 saving", "sum 1 saved", "end 2 asked",
        "end 2 run.json written",
    )
]  # fmt: skip


@pytest.mark.federation
@pytest.mark.slow
@pytest.mark.parametrize("protect", ["secure-sum", "dp"])
def test_roles_killed_in_every_phase_of_verified_aggregation_change_no_v_and_pay_once(tmp_path, protect):
    pytest.importorskip("aiohttp")
    pytest.importorskip("cryptography")
    from tests.network.killed_roles import coordinate, process, survive, take_part

    changes = real.terms("PooledNMF", ROUNDS, {"resend": 600}, tol=0.0)
    secure = {"secure-sum": {"allow": ["small-client"]}, "dp": {"epsilon": 1.0, "row_bound": 6.0, "rows": 130.0}}
    changes["privacy"] |= {"protect": protect, **secure[protect]}
    files = real.write_rows(tmp_path)
    trial = Trial(tmp_path / "all", files, changes)
    for name, file in files.items():
        Member(trial.toml, trial.root / f"{name}.key", trial.folder(name)).sign_up(file, confirmed=True)
    plans = tmp_path / "plans"
    plans.mkdir()
    for moment in (*party_deaths(protect), *SERVER_DEATHS):
        (plans / moment).touch()
    roles = {"coordinator": functools.partial(process, coordinate, trial.toml, plans)}
    roles |= {name: functools.partial(process, take_part, trial.toml, name, plans) for name in files}
    kills = survive(roles, 500.0)
    assert not [plan.name for plan in plans.iterdir() if not plan.name.startswith("done ")]
    assert kills["coordinator"] == len(SERVER_DEATHS)
    assert sum(kills.values()) == len(party_deaths(protect)) + len(SERVER_DEATHS)
    found = {name: factors.V for name, factors in real.factors(trial).items()}
    if protect == "secure-sum":
        wanted = real.local(files, trial).factors["north"].V
    else:
        wanted = from_bytes((trial.coordinator.folder / "result" / "down.safetensors").read_bytes())["down"].V
    for V in found.values():
        np.testing.assert_array_equal(V, wanted)
    for name in files:
        store = ClientFolder(trial.folder(name))
        sent = defaultdict(set)
        for line in store.sent():
            assert "reason" not in line, line  # nothing was refused
            sent[line["kind"], line["index"]].add(line["sha256"])
        sums = {("sum", 0): 2} if protect == "secure-sum" else {}  # of the survey, and of the first step
        assert {asked: len(answers) for asked, answers in sent.items()} == {asked: sums.get(asked, 1) for asked in sent}
        assert len(store.answered.so_far()[1]) == ROUNDS
        if protect == "dp":
            entries = [(entry.run, entry.round) for entry in store.ledger.entries()]
            assert len(entries) == len(set(entries)) == ROUNDS
