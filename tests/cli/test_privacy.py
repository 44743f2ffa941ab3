"""Privacy words on the command line."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest

from fedfactor.cli import app
from fedfactor.privacy import Ledger
from tests.command_line import CliRunner

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")


@pytest.fixture
def owners(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "owners"
    folder.mkdir()
    for i in range(4):
        np.save(folder / f"o{i}.npy", rng.random((120, 3)) @ rng.random((3, 10)))
    return folder


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.slow
def test_fit_with_noise_and_books_across_runs(owners, tmp_path):
    for name in ("one", "two"):
        result = call("fit", owners, "-k", 3, "-o", tmp_path / name, "--rounds", 3, "--privacy", "dp", "--epsilon", 2,
                      "--ledger", tmp_path / "books.jsonl", "--budget", 5)  # fmt: skip
        assert result.exit_code == 0, result.output
    assert "ε = 2" in result.output
    about = json.loads((tmp_path / "two" / "shared" / "run.json").read_text())["privacy"]
    assert about["epsilon"] <= 2 < about["data_set_epsilon"]
    assert len(Ledger(tmp_path / "books.jsonl").entries()) == 8


@pytest.mark.slow
def test_fit_under_a_secure_sum(owners, tmp_path):
    result = call("fit", owners, "-k", 3, "-o", tmp_path / "out", "--rounds", 3, "--privacy", "secure-sum")
    assert result.exit_code == 0, result.output
    assert "no single one" in result.output


@pytest.mark.slow
def test_audit_ends_with_its_verdict(owners, tmp_path):
    result = call("audit", owners, "-k", 3, "-o", tmp_path / "out", "--rounds", 3, "--privacy", "secure-sum")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "audit.html").exists()
    result = call("audit", owners, "-k", 3, "-o", tmp_path / "out", "--rounds", 3, "--privacy", "secure-sum",
                  "--allow", "changed-cohort", "--allow", "rare-columns")  # fmt: skip
    assert result.exit_code == 1, result.output
    assert "REFUTED" in result.output


@pytest.mark.slow
def test_audit_says_what_was_not_tried(owners, tmp_path):
    result = call("audit", owners, "-k", 3, "-o", tmp_path / "out", "--rounds", 3)
    assert "{'" not in result.output  # figures in words, not as Python writes them
    assert result.exit_code == 0, result.output
    assert "downloads that no honest server sends" in result.output
    assert "does not apply difference of two sums" in result.output


@pytest.mark.slow
def test_audit_of_what_cannot_be_searched_ends_with_three(tmp_path):
    narrow = [tmp_path / f"{name}.csv" for name in ("north", "south", "west")]
    for number, path in enumerate(narrow):
        cells = np.random.default_rng(number).random((30, 3)).round(3)
        path.write_text("\n".join(["a,b,c", *(",".join(map(str, row)) for row in cells)]))
    result = call("audit", *narrow, "-k", 3, "-o", tmp_path / "out", "--rounds", 3, "--privacy", "secure-sum")
    assert result.exit_code == 3, result.output
    assert "a registry with keys of the coordinator's own" in result.output
    assert 'Privacy audit: <span class="not-examined">Not tested' in (tmp_path / "out" / "audit.html").read_text()


def test_words_that_are_not_known(owners, tmp_path):
    result = call("fit", owners, "-k", 3, "-o", tmp_path / "out", "--privacy", "hope")
    assert result.exit_code == 2
    assert "'hope' is not known" in result.output


@pytest.mark.parametrize("word", ["none", "secure-sum"])
@pytest.mark.parametrize("option", [("--epsilon", 1), ("--delta", 1e-6), ("--unit", "row"), ("--row-bound", 3)])
def test_a_budget_without_noise_is_refused(owners, tmp_path, word, option):
    for command in ("fit", "audit"):
        result = call(command, owners, "-k", 3, "-o", tmp_path / "out", "--privacy", word, *option)
        assert result.exit_code == 2
        assert option[0] in result.output
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_run_without_noise_is_in_the_books_too(owners, tmp_path):
    books = tmp_path / "books.jsonl"
    result = call("fit", owners, "-k", 3, "-o", tmp_path / "out", "--rounds", 3, "--ledger", books)
    assert result.exit_code == 0, result.output
    assert Ledger(books).epsilon() == math.inf
    assert len(Ledger(books).entries()) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--privacy", "secure-sum", "--allow", "nonsense"), "not a minimum"),
        (("--allow", "nonsense"), "not a minimum"),
        (("--allow", "small-client"), "overrides nothing"),
        (("--privacy", "dp", "--allow", "small-client"), "overrides nothing"),
        (("--privacy", "median", "--allow", "rare-columns"), "overrides nothing"),
        (("--privacy", "secure-sum", "--cap", "3"), "--cap speaks of noise"),
        (("--known-to", "2"), "--known-to speaks of noise"),
        (("--privacy", "dp", "--cap", "3"), "cap and known_to"),
    ],
)
def test_words_that_do_not_apply_are_not_dropped_in_silence(owners, tmp_path, words, said):
    result = call("fit", owners, "-k", 3, "-o", tmp_path / "out", "--rounds", 2, *words)
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_ledger_is_a_budget(owners, tmp_path):
    """Its limit was in no file: three more runs reached 2.11 of 1.0."""
    books = tmp_path / "books.jsonl"
    words = ("--rounds", 3, "--privacy", "dp", "--epsilon", 1, "--ledger", books)
    assert call("fit", owners, "-k", 3, "-o", tmp_path / "one", *words).exit_code == 0
    result = call("fit", owners, "-k", 3, "-o", tmp_path / "two", *words)
    assert result.exit_code == 2
    assert "what is left of the budget" in result.output
    result = call("fit", owners, "-k", 3, "-o", tmp_path / "two", *words, "--budget", 9)
    assert result.exit_code == 2
    assert "raise_budget" in result.output
    assert Ledger(books).epsilon() <= 1
    assert books.stat().st_mode & 0o777 == 0o600


def figures(value, path=""):
    """List every number in a record, with where it stands."""
    if isinstance(value, dict):
        return [found for key, part in value.items() for found in figures(part, f"{path}/{key}")]
    if isinstance(value, list):
        return [found for i, part in enumerate(value) for found in figures(part, f"{path}/{i}")]
    return [(path, value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


@pytest.mark.slow
def test_what_may_be_shared_of_a_private_run_does_not_tell_whether_a_row_took_part(owners, tmp_path):
    """The shared record held each owner's exact number of rows: one row less was seen in 6 of 6 runs."""
    words = ("-k", 3, "--rounds", 3, "--seed", 1, "--privacy", "dp", "--epsilon", 1, "--row-bound", 3)
    seen = []
    for name, rows in (("all", 120), ("less", 119)):
        np.save(owners / "o1.npy", np.load(owners / "o1.npy")[:rows])
        result = call("fit", owners, "-o", tmp_path / name, *words)
        assert result.exit_code == 0, result.output
        record = json.loads((tmp_path / name / "shared" / "run.json").read_text())
        seen.append(record)
        told = {path for path, number in figures(record) if number in (480, 479, 120, 119)}
        assert not told
    exact = {"relative_error", "worst_client", "owners", "seconds"}
    for record in seen:
        assert not exact & set(record)
        assert all(set(entry) <= {"index", "participants", "bytes_up", "bytes_down", "rejected"}
                   for entry in record["history"])  # fmt: skip
    # Beside the noise itself, nothing in the two records differs but what noise is in.
    flat = [dict(figures(record)) for record in seen]
    differing = {path for path in flat[0] if flat[0][path] != flat[1].get(path)}
    assert differing <= {"/settings/row_count", "/privacy/rows"}
    own = json.loads((tmp_path / "less" / "private" / "run.json").read_text())
    assert own["owners"]["o1"]["rows"] == 119
    assert (tmp_path / "less" / "private" / "run.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "less" / "private").stat().st_mode & 0o777 == 0o700
    said = call("info", tmp_path / "less")
    assert said.exit_code == 0, said.output
    shutil.rmtree(tmp_path / "less" / "private")  # what others get
    said = call("info", tmp_path / "less")
    assert said.exit_code == 0, said.output
    assert "relative error" not in said.output


def test_uploads_with_noise_are_told_as_they_were_sent():
    from fedfactor.algorithms import PooledNMF
    from fedfactor.cli.run_summary import uploads
    from fedfactor.core.algorithm import Meta

    meta = Meta(5, ("a", "b"))
    plain = uploads(PooledNMF(2, start="random"), meta)
    assert "noise" not in plain[0]
    rows = uploads(PooledNMF(2, start="random"), meta, {"mode": "dp", "unit": "row"})
    assert all("clipped gradients" in line and "with noise added before it left" in line for line in rows)
    whole = uploads(PooledNMF(2, start="random"), meta, {"mode": "dp", "unit": "client"})
    assert whole == [plain[0].replace(";", ", with noise added before it left;")]


@pytest.mark.slow
def test_audit_attacks_what_a_federation_agreed_on(owners, tmp_path):
    pytest.importorskip("cryptography")
    from fedfactor.federation.trial import Trial

    files = {path.stem: path for path in sorted(owners.iterdir())}
    privacy = {"protect": "dp", "epsilon": 2.0, "row_bound": 9.0, "rows": 400.0, "minimum_rows": 5, "colluding": 1}
    changes = {"algorithm": {"n_components": 3}, "run": {"rounds": 2}, "privacy": privacy}
    trial = Trial(tmp_path / "all", files, changes)
    words = ["audit", *files.values(), "--terms", trial.toml, "-o", tmp_path / "out"]
    said = call(*words, "--canaries", 20)
    assert said.exit_code in (0, 3), said.output
    about = json.loads((tmp_path / "out" / "audit.json").read_text())["about"]
    assert about["rounds"] == 2
    for part in ("epsilon=2.0", "row_bound=9.0", "rows=400.0", "colluding=1"):
        assert part in about["privacy"][0]
    assert "a registry with keys" in said.output
    assert "--rank is in the terms" in call(*words, "-k", 3).output
    assert "--terms federation.toml" in call("audit", owners, "-o", tmp_path / "out").output
    for few in (1, 5, 8):
        said = call(*words, "--canaries", few)
        assert said.exit_code == 2
        assert "x>=20" in said.output


def test_audit_takes_public_rows_and_colluding_owners(owners, tmp_path):
    said = call("audit", owners, "-k", 3, "-o", tmp_path / "out", "--rows", 400)
    assert "--rows speaks of noise" in said.output
    from fedfactor.cli.privacy import privacy_of

    asked = privacy_of("dp", rows=400.0, colluding=2)[0]
    assert (asked.rows, asked.colluding) == (400.0, 2)
