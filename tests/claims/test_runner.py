from __future__ import annotations

import importlib
import json

import pytest

from claims.__main__ import ROOT, main
from claims._runner import find_claims

HOLDS = '"""Two and two are four."""\ndef claim():\n    return {"sum": 2 + 2, "holds": 2 + 2 == 4}\n'
FAILS = '"""Two and two are five."""\ndef claim():\n    return {"sum": 2 + 2, "holds": 2 + 2 == 5}\n'
BREAKS = '"""Breaks."""\ndef claim():\n    return {"holds": 1 / 0 > 0}\n'
COUNTS = (
    '"""Counts its runs in a file."""\nfrom pathlib import Path\ndef claim():\n'
    '    log = Path(__file__).with_suffix(".log")\n'
    '    log.write_text((log.read_text() if log.exists() else "") + "x")\n'
    '    return {"holds": True}\n'
)


@pytest.fixture
def house(tmp_path):
    """A folder of claims, a source tree and a function that runs the runner on them."""
    (tmp_path / "claims").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "code.py").write_text("x = 1\n")

    class House:
        root, claims, out = tmp_path, tmp_path / "claims", tmp_path / "evidence.json"

        def write(self, **claims):
            for name, text in claims.items():
                (self.claims / f"{name}.py").write_text(text)

        def run(self, *arguments):
            places = ["--claims", str(self.claims), "--source", str(tmp_path / "src"), "--out", str(self.out)]
            return main([*arguments, *places])

        def evidence(self):
            return json.loads(self.out.read_text())

    return House()


def test_records_figures_holds_seconds_versions_and_date(house):
    house.write(four=HOLDS)
    assert house.run() == 0
    record = house.evidence()["four"]
    assert record["figures"] == {"sum": 4}
    assert record["holds"] is True
    assert record["claim"] == "Two and two are four."
    assert record["seconds"] >= 0
    assert "numpy" in record["versions"]
    assert record["date"].endswith("+00:00")


def test_one_failing_claim_fails_the_run_and_the_rest_still_run(house):
    house.write(a_fails=FAILS, b_breaks=BREAKS, c_holds=HOLDS)
    assert house.run() == 1
    evidence = house.evidence()
    assert {name: record["holds"] for name, record in evidence.items()} == {
        "a_fails": False,
        "b_breaks": False,
        "c_holds": True,
    }
    assert "ZeroDivisionError" in evidence["b_breaks"]["error"]


def test_resumes_and_runs_again_when_the_code_changes(house):
    house.write(counts=COUNTS)
    log = house.claims / "counts.log"
    house.run()
    house.run()
    assert log.read_text() == "x"
    house.run("--fresh")
    assert log.read_text() == "xx"
    (house.root / "src" / "code.py").write_text("x = 2\n")
    house.run()
    assert log.read_text() == "xxx"


def test_item_runs_only_that_claim_and_keeps_the_others(house):
    house.write(four=HOLDS, five=FAILS)
    house.run()
    assert house.run("four") == 0
    assert set(house.evidence()) == {"four", "five"}


def test_unknown_item_is_refused_with_the_names_that_exist(house, capsys):
    house.write(four=HOLDS)
    with pytest.raises(SystemExit):
        house.run("six")
    assert "there are: four" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["1", "None", "'yes'"])
def test_holds_must_be_a_bool(house, value):
    house.write(odd=f"def claim():\n    return {{'holds': {value}}}\n")
    assert house.run() == 1
    assert "must be True or False" in house.evidence()["odd"]["error"]


def test_figures_that_json_cannot_hold_do_not_spoil_the_file(house):
    house.write(good=HOLDS, odd="def claim():\n    return {'holds': True, 'figure': object()}\n")
    assert house.run() == 1
    assert house.evidence()["good"]["holds"] is True
    assert house.evidence()["odd"]["holds"] is False


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(find_claims(ROOT / "claims")))
def test_every_claim_still_finds_what_it_speaks_of(name):
    assert callable(importlib.import_module(f"claims.{name}").claim)
