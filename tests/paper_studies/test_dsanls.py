"""The study over parties counts what the engine sends."""

from __future__ import annotations

import pytest

from papers.dsanls import figures, secure, tables

CELL = {"data": "planted", "k": 3, "full": False, "exchanges": 2, "seed": 0, "clock": "virtual"}


@pytest.mark.parametrize("split", ["uniform", "imbalanced"])
def test_messages_bytes_and_speed_over_parties(split):
    found = {
        method: secure.measure_parties({**CELL, "split": split, "parties": 4, "method": method})
        for method in ("Syn-SD", "Syn-SSD-U", "Asyn-SD")
    }
    assert found["Syn-SD"]["messages"] == 2
    assert found["Syn-SSD-U"]["messages"] == 20  # one in every alternation
    assert found["Syn-SD"]["sent"] > 2 * 8 * 3 * 200  # V, here 3 × 200 numbers, in every exchange
    # The largest party sets the pace of rounds, and of nothing else.
    largest = 1 / 4 if split == "uniform" else 10 / 13
    assert found["Syn-SD"]["speed"] == pytest.approx(10 / largest, rel=0.02)
    assert found["Asyn-SD"]["speed"] >= 0.98 * found["Syn-SD"]["speed"]


@pytest.mark.slow
def test_the_table_and_the_picture_of_parties(tmp_path):
    row = {**CELL, "method": "Syn-SD", "speed": 40.0, "messages": 2.0, "sent": 100, "final": 0.5}
    rows = [{**row, "split": split, "parties": n} for split in ("uniform", "imbalanced") for n in (2, 4)]
    tables.write_parties(tmp_path, rows)
    figures.draw_parties(tmp_path, rows)
    assert (
        "| planted | virtual | imbalanced | 4 | Syn-SD | 40.0 | 2 | 100 | 0.5000 |"
        in (tmp_path / "parties.md").read_text()
    )
    assert (tmp_path / "parties-planted.png").exists()
