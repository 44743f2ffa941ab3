"""Audits through the real code: what is claimed is attacked, and a broken build is refuted."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import FELB, FedDMF, PooledBMF, PooledNMF
from fedfactor.audit import (
    AuditReport,
    audit,
    epsilon_lower_bound,
    item_vector_membership,
    plant_canaries,
    score_canaries,
)
from fedfactor.audit.findings import LABELS
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.client_items import ItemShard
from fedfactor.privacy import Minimums, SecureSum, calibrate

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")


IDS = {name: np.arange(100) // 2 for name in "abcdef"}


def found(report, attack):
    return next(finding for finding in report.findings if finding.attack == attack)


@pytest.mark.slow
def test_rows_of_small_clients_in_the_clear_are_all_recovered(tmp_path):
    rng = np.random.default_rng(0)
    data = {f"c{i}": (rng.random((n, 300)) < 0.05) * 1.0 for i, n in enumerate((1, 3, 5, 8))}
    report = audit(PooledNMF(8), data, rounds=3)
    finding = found(report, "rows from one upload in the clear")
    assert (finding.figures["rows"], finding.figures["recovered"], finding.figures["false"]) == (17, 17, 0)
    assert report.verdict == "REFUTED"
    report.write(tmp_path)
    assert json.loads((tmp_path / "audit.json").read_text())["verdict"] == "REFUTED"
    page = (tmp_path / "audit.html").read_text()
    assert "Protection failed" in page.split("</h1>")[0]
    assert "It never means" in page


@pytest.mark.slow
@pytest.mark.parametrize("method", [FELB(2), PooledBMF(2, solver="proximal")])
def test_boolean_methods_are_examined(method):
    rng = np.random.default_rng(0)
    data = {name: (rng.random((40, 6)) < 0.4) * 1.0 for name in "abc"}
    privacy = fedfactor.dp(epsilon=5, delta=1e-3, unit="client", clip=1.0)
    report = audit(method, data, privacy=privacy, rounds=2, canaries=40)
    finding = found(report, "one client planted in many runs")
    assert finding.verdict == "consistent", finding.note


@pytest.mark.slow
@pytest.mark.parametrize("n_components", [3, 32])
def test_item_vectors_are_audited_for_what_they_are(n_components):
    pytest.importorskip("torch")
    X = (np.random.default_rng(0).random((60, 24)) < 0.3).astype(np.float32)
    X[0] = np.arange(24) == 5  # a row of one item, which vectors that span everything would "contain"
    held = np.arange(18)
    shards = {"a": ItemShard(X[:30] * (np.arange(24) < 18), held=held), "b": ItemShard(X[30:])}
    report = audit(FedDMF(n_components, hidden=8, epochs=2), Federation(shards))
    assert 0 <= found(report, "membership from published item vectors").figures["auc"] <= 1
    rows = found(report, "rows from one upload in the clear")
    assert (rows.figures["recovered"], rows.figures["confirmed"]) == (0, 0)
    assert rows.verdict == ("consistent" if n_components == 3 else "not examined")


@pytest.mark.slow
def test_item_vectors_of_a_tiny_client_give_its_users_away():
    pytest.importorskip("torch")
    X = (np.random.default_rng(0).random((60, 150)) < 0.2).astype(np.float32)
    algorithm = FedDMF(16, hidden=32, epochs=60, batch_size=128)
    figures = item_vector_membership(algorithm, Federation({"a": X[:30], "b": X[30:]})).figures
    assert min(figures["auc"], figures["auc_by_comparison"]) > 0.75
    assert figures["auc_of_another_client"] < 0.65


@pytest.mark.slow
def test_item_vectors_in_secure_sums_are_audited_too():
    pytest.importorskip("torch")
    X = (np.random.default_rng(0).random((80, 24)) < 0.3).astype(np.float32)
    report = audit(
        FedDMF(3, hidden=8, epochs=2), {name: X[i::4] for i, name in enumerate("abcd")}, privacy="secure-sum"
    )
    assert found(report, "columns that one row fills").verdict in ("does not apply", "not examined")
    assert found(report, "rows from the sums").figures["recovered"] == 0


@pytest.mark.slow
def test_half_of_the_rows_stay_out_and_masks_go_along():
    rng = np.random.default_rng(0)
    X = rng.random((40, 6))
    mask = rng.random(X.shape) < 0.8
    report = audit(
        PooledNMF(2), Federation({"a": Shard(X[:20], mask=mask[:20]), "b": Shard(X[20:], mask=mask[20:])}), rounds=3
    )
    assert report.about["rows"] == 40
    assert 0 <= found(report, "membership from the final V").figures["auc"] <= 1


def test_medians_see_uploads_one_by_one_and_are_attacked_that_way():
    rng = np.random.default_rng(0)
    data = {f"c{i}": (rng.random((4, 120)) < 0.05) * 1.0 for i in range(4)}
    report = audit(PooledNMF(5, start="random"), data, privacy="median", rounds=2)
    assert found(report, "rows from one upload in the clear").figures["recovered"] == 16
    assert report.verdict == "REFUTED"


@pytest.mark.slow
def test_what_travels_in_clear_beside_secure_sums_is_attacked_too():
    rng = np.random.default_rng(0)
    data = {f"c{i}": (rng.random((4, 120)) < 0.05) * 1.0 for i in range(4)}
    off = Minimums(allow=("rare-columns", "changed-cohort", "small-client"))
    method = PooledNMF(5, start="stacked")
    report = audit(method, data, privacy=(SecureSum(gathered="clear"), off), rounds=2)
    assert found(report, "rows from one upload in the clear").figures["recovered"] > 0
    summed = audit(PooledNMF(5), data, privacy=(SecureSum(), off), rounds=2)
    assert "rows from one upload in the clear" not in [finding.attack for finding in summed.findings]


def smooth():
    rng = np.random.default_rng(0)
    X = rng.random((600, 5)) @ rng.random((5, 80)) + 0.01
    X[:, 60:] = 0
    X[np.arange(20), 60 + np.arange(20)] = 1.0
    return dict(zip("abcdef", np.array_split(X, 6), strict=True))


@pytest.mark.slow
def test_bare_sums_are_refuted_and_the_minimums_close_what_was_found():
    off = Minimums(allow=("rare-columns", "changed-cohort", "small-client"))
    bare = audit(PooledNMF(5), smooth(), privacy=("secure-sum", off), rounds=10)
    assert found(bare, "columns that one row fills").figures["rows_exposed"] == 20
    assert found(bare, "difference of two sums").figures["relative_error"] < 0.2
    assert bare.verdict == "REFUTED"
    kept = audit(PooledNMF(5), smooth(), privacy="secure-sum", rounds=10)
    assert found(kept, "columns that one row fills").figures["rows_exposed"] == 0
    assert found(kept, "difference of two sums").figures == {"refused": True}
    assert kept.verdict == "consistent"


@pytest.mark.slow
def test_noise_is_consistent():
    report = audit(PooledNMF(5), smooth(), privacy=fedfactor.dp(1.0), rounds=2, canaries=200)
    assert report.verdict == "consistent"
    assert found(report, "one row planted in many runs").figures["epsilon"] <= 1
    assert found(report, "rows from the sums").figures["recovered"] == 0
    assert found(report, "planted rows in one run").figures["epsilon"] <= 1
    assert report.claim["unit"] == "row"


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [fedfactor.dp(1.0, unit="client", clip=1.0), fedfactor.dp(1.0, unit="subject", subject=IDS, cap=2)],
    ids=["client", "subject"],
)
def test_every_unit_is_planted(asked):
    report = audit(PooledNMF(5), smooth(), privacy=asked, rounds=2, canaries=100)
    planted = found(report, f"one {asked.unit} planted in many runs")
    assert planted.verdict == "consistent"
    assert planted.figures["part_of_the_bound"] > 0.99


@pytest.mark.slow
def test_a_claim_that_too_few_canaries_could_refute_is_not_examined():
    report = audit(PooledNMF(5), smooth(), privacy=fedfactor.dp(8.0), rounds=1, canaries=20)
    assert found(report, "planted rows in one run").verdict == "not examined"
    assert report.verdict == "not examined"
    assert "Not tested" in report.to_html().split("</h1>")[0]


@pytest.mark.slow
def test_rare_columns_are_tried_in_the_clear_too():
    report = audit(PooledNMF(5), smooth(), rounds=3)
    assert found(report, "columns that one row fills").figures["rows_exposed"] == 20
    assert report.verdict == "REFUTED"


@pytest.mark.slow
def test_rows_of_any_values_are_confirmed_to_whoever_guesses_them():
    rng = np.random.default_rng(0)
    report = audit(PooledNMF(4), {"a": rng.random((3, 40)), "b": rng.random((30, 40))}, rounds=3)
    rows = found(report, "rows from one upload in the clear")
    assert rows.figures["confirmed"] == 3
    assert rows.verdict == "REFUTED"


def test_nothing_searched_is_not_consistent():
    rng = np.random.default_rng(0)
    report = audit(PooledNMF(3), {"a": rng.random((30, 3)), "b": rng.random((30, 3))}, rounds=2)
    assert found(report, "rows from one upload in the clear").verdict == "not examined"
    assert found(report, "rows from the sums").verdict == "not examined"
    assert found(report, "difference of two sums").verdict == "does not apply"


class Trusting(PooledNMF):
    """A party that believes whatever comes."""

    def accepts(self, down, meta):
        return ""


@pytest.mark.slow
def test_a_server_that_lies_is_tried():
    rng = np.random.default_rng(0)
    owners = {name: rng.random((20, 12)) for name in "abc"}
    told = found(audit(PooledNMF(3), owners, rounds=2), "downloads that no honest server sends")
    assert told.verdict == "consistent"
    assert told.figures["offered"] >= 5
    believed = found(audit(Trusting(3), owners, rounds=2), "downloads that no honest server sends")
    assert believed.verdict == "REFUTED"
    assert believed.figures["taken_negative"]


class Touchy(PooledNMF):
    """A party that refuses large rows, and so answers a question about them."""

    def client_step(self, shard, state, down, at):
        if float(np.max(shard.X)) > 1e3:
            raise ValueError("too large")
        return PooledNMF.client_step(self, shard, state, down, at)


@pytest.mark.slow
def test_refusals_that_depend_on_rows_are_told():
    rng = np.random.default_rng(0)
    owners = {name: rng.random((20, 12)) for name in "abc"}
    attack = "answers or refusals that depend on rows"
    assert found(audit(PooledNMF(3), owners, rounds=2), attack).verdict == "consistent"
    assert found(audit(Touchy(3), owners, rounds=2), attack).verdict == "REFUTED"


@pytest.mark.slow
def test_the_page_explains_every_figure_and_word():
    rng = np.random.default_rng(0)
    data = {f"c{i}": (rng.random((n, 40)) < 0.1) * 1.0 for i, n in enumerate((2, 9, 9))}
    page = audit(PooledNMF(4), data, rounds=2).to_html()
    for name in ("recovered", "confirmed", "auc", "singleton_columns", "taken_negative", "sizes_refused"):
        assert f"<dt>{name}</dt>" in page
    for word, label in LABELS.items():
        assert f"<dt>{label} ({word})</dt>" in page


@pytest.mark.slow
def test_an_attack_without_a_claim_is_not_shown_as_passed():
    data = dict(zip("abc", np.array_split(np.random.default_rng(0).random((90, 6)), 3), strict=True))
    report = audit(PooledNMF(2), data, rounds=2)
    assert found(report, "membership from the final V").verdict == "no claim"
    row = next(part for part in report.to_html().split("<tr>") if "membership from the final V" in part)
    assert "No protection stated" in row
    assert "did not succeed" not in row
    assert AuditReport({}, [found(report, "membership from the final V")]).verdict == "not examined"


def lower_bound(privacy, seed):
    planted = plant_canaries(300, np.random.default_rng(seed))
    scores = score_canaries(planted, (privacy, SecureSum(threshold=1.0)), rounds=40, n_clients=3, seed=seed)
    return epsilon_lower_bound(scores, planted.included, 1e-5)["epsilon"]


@pytest.mark.slow
def test_a_build_without_composition_is_refuted_and_ours_is_not():
    public = {"row_bound": 1.0, "rows": 150}
    once = calibrate(1.0, 1e-5, 1)
    broken = fedfactor.dp(1e9, noise_multiplier=once, **public)
    assert lower_bound(fedfactor.dp(1.0, **public), 0) <= 1
    assert lower_bound(broken, 0) > 1


@pytest.mark.slow
@pytest.mark.parametrize("binary", [False, True])
def test_sums_that_span_every_column_or_rows_that_are_not_binary_refute_nothing(binary):
    X = np.random.default_rng(0).random((480, 6))
    X = (X < 0.5) * 1.0 if binary else X
    report = audit(PooledNMF(2), dict(zip("abcd", np.array_split(X, 4), strict=True)), privacy="secure-sum", rounds=3)
    finding = found(report, "rows from the sums")
    assert (finding.figures["recovered"], finding.figures["false"]) == (0, 0)
    assert ("only guesses can be confirmed" in finding.note) != binary
    assert report.verdict == "consistent"
