"""A run killed at random moments goes on as if nothing had happened; thirty kills are in claims/kill_resume.py."""

from __future__ import annotations

import signal

import pytest

from claims._kill import killed_until_done, undisturbed

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
