"""Two thousand connections of outsiders, and attacks with a party's key, on a real server while a run goes on."""

from __future__ import annotations

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("psutil")

from claims import _flower as real
from claims.outsiders import BY_KEY, CONNECTIONS, GROWTH, besiege
from fedfactor.federation.trial import Trial

pytestmark = [pytest.mark.integration, pytest.mark.federation, pytest.mark.slow]


def test_attackers_neither_fill_nor_stop_a_server(tmp_path):
    with Trial(tmp_path / "trial", real.write_rows(tmp_path), real.terms("PooledNMF", 4, tol=0.0)) as trial:
        found = besiege(trial, CONNECTIONS, BY_KEY, 600.0)
    assert found["run_besieged"] == "finished", found
    assert found["server_mb_peak"] - found["server_mb_before"] <= GROWTH, found
    assert found["still_besieged_at_its_end"]
    assert found["came_outside"] >= CONNECTIONS
    assert found["came_by_key"] >= BY_KEY
