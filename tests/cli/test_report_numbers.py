"""Every figure of a report is recomputed from input files and written factors, without the library's metrics."""

from __future__ import annotations

import csv
import html
import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy import sparse
from sklearn.metrics import mean_gamma_deviance, mean_poisson_deviance, ndcg_score

import fedfactor
from fedfactor.cli import app
from fedfactor.cli.quality_text import gain_sentence, last_round_differs
from fedfactor.recommend.rating_statistics import hold_out
from tests.command_line import CliRunner

OWNERS = ("east", "north", "west")


def call(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done


def rows_of(kind, seed=0):
    rng = np.random.default_rng(seed)
    V = rng.gamma(0.5, size=(3, 7)) + 0.05
    found = {}
    for name, n in zip(OWNERS, (14, 11, 17), strict=True):
        mean = rng.gamma(0.5, size=(n, 3)) @ V
        if kind == "counts":
            found[name] = rng.poisson(8 * mean).astype(float)
            found[name][:, 0] += 1  # no row of zeros
        elif kind == "powers":
            found[name] = mean * rng.gamma(2.0, size=mean.shape) + 0.01
        elif kind == "boolean":
            made = (rng.random((n, 3)) < 0.4) @ (np.arange(7) % 3 == np.arange(3)[:, None])
            found[name] = ((made > 0) ^ (rng.random((n, 7)) < 0.06)).astype(float)
        else:
            found[name] = mean + 0.1 * rng.random((n, 7))
    return found


def written(folder, rows):
    folder.mkdir()
    for name, X in rows.items():
        with open(folder / f"{name}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["patient_id", *(f"lab{j}" for j in range(X.shape[1]))])
            writer.writerows([f"{name}{i}", *map(repr, row.tolist())] for i, row in enumerate(X))
    return folder


def factors(out):
    V = load_file(out / "shared" / "components.safetensors")["components"]
    return V, {name: load_file(out / "private" / f"{name}.safetensors")["U"] for name in OWNERS}


def cards(out):
    text = (out / "report.html").read_text()
    found = re.findall(r"<li><b>(.*?)</b><span>(.*?)</span><br><small>(.*?)</small></li>", text)
    return [tuple(html.unescape(each) for each in card) for card in found]


def table(out, head):
    """Return the table whose heads hold a text, as a mapping from the first cell to the others."""
    for part in re.findall(r"<table>(.*?)</table>", (out / "report.html").read_text(), re.DOTALL):
        heads = [html.unescape(each) for each in re.findall(r"<th scope=[\"']col[\"'][^>]*>(.*?)</th>", part)]
        if head in heads:
            rows = re.findall(r"<tr[^>]*><th scope=[\"']row[\"']>(.*?)</th>(.*?)</tr>", part, re.DOTALL)
            cells = {name: re.findall(r"<td[^>]*>(.*?)</td>", rest, re.DOTALL) for name, rest in rows}
            return {name: dict(zip(heads[1:], each, strict=True)) for name, each in cells.items()}
    raise AssertionError(f"no table with {head!r}")


def deviance(kind, X, Y):
    if kind == "squared":
        return float(((X - Y) ** 2).sum())
    return X.size * {"kl": mean_poisson_deviance, "is": mean_gamma_deviance}[kind](X.ravel(), Y.ravel())


LOSSES = {
    "squared": ("amounts", ()),
    "kl": ("counts", ("--set", "loss=kullback-leibler")),
    "is": ("powers", ("--set", "loss=itakura-saito")),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOSSES)
def test_squared_and_divergence_reports(kind, tmp_path):
    rows = rows_of(LOSSES[kind][0])
    out = tmp_path / "out"
    words = ("-k", 3, "--seed", 1, "--rounds", 40, "-o", out, "-q", *LOSSES[kind][1])
    call("fit", written(tmp_path / "data", rows), *words)
    V, U = factors(out)
    null = {name: np.zeros_like(X) if kind == "squared" else np.repeat(X.mean(1, keepdims=True), 7, 1)
            for name, X in rows.items()}  # fmt: skip
    lost = {name: deviance(kind, X, U[name] @ V) for name, X in rows.items()}
    total = {name: deviance(kind, X, null[name]) for name, X in rows.items()}
    explained = 100 * (1 - sum(lost.values()) / sum(total.values()))
    error = np.sqrt(sum(lost.values()) / sum(total.values()))
    pooled = np.vstack(list(rows.values()))
    simple = np.broadcast_to(pooled.mean(0), pooled.shape)
    if kind == "kl":
        simple = np.outer(pooled.sum(1), pooled.sum(0) / pooled.sum())
    baseline = 100 * (1 - deviance(kind, pooled, simple) / sum(total.values()))
    of = "sum of squares" if kind == "squared" else "deviance"
    says = f"explains {baseline:.1f} % of the {of}" if baseline > 0 else "explains nothing"

    main, worst, sent = cards(out)[:3]
    if kind == "squared":
        assert main[:2] == (f"{error:.4f}", "relative error over all rows")
        assert main[2].startswith(f"explains {explained:.1f} % of the sum of squares; baseline")
    else:
        assert main[:2] == (f"{explained:.1f} %", "of the deviance explained, all rows")
        assert "sum of squares" not in (out / "report.html").read_text()
    assert main[2].endswith(says)
    name = max(rows, key=lambda each: lost[each] / total[each])
    assert worst[0] == f"{np.sqrt(lost[name] / total[name]):.4f}"
    assert worst[2].startswith(f"{name}: explains {100 * (1 - lost[name] / total[name]):.1f} % of its ")

    owners = table(out, "relative error")
    for name, X in rows.items():
        assert owners[name]["rows"] == str(len(X))
        assert owners[name]["relative error"] == f"{np.sqrt(lost[name] / total[name]):.4f}"
    features = table(out, "explained, beyond the baseline")
    model = np.vstack([U[name] @ V for name in rows])
    for j in range(7):
        part = slice(j, j + 1)
        share = 1 - deviance(kind, pooled[:, part], model[:, part]) / deviance(kind, pooled[:, part], simple[:, part])
        assert features[f"lab{j}"][next(iter(features["lab0"]))] == f"{100 * share:.1f} %"

    weight = sum(u.sum(0) for u in U.values()) * V.sum(1)
    shares = table(out, "most weight on")
    assert [int(t) for t in shares] == np.argsort(-weight, kind="stable").tolist()
    for t, cell in shares.items():
        assert cell["share"] == f"{100 * weight[int(t)] / weight.sum():.1f}&nbsp;%"
    record = json.loads((out / "shared" / "run.json").read_text())
    up = sum(each["bytes_up"] for each in record["history"])
    assert float(sent[0].split()[0]) == float(f"{up / 1000:.3g}")


@pytest.mark.slow
def test_boolean_report(tmp_path):
    rows = rows_of("boolean")
    out = tmp_path / "out"
    call("fit", written(tmp_path / "data", rows), "-a", "pooled-bmf", "-k", 3, "--seed", 0, "-o", out, "-q")
    V, U = factors(out)
    X = np.vstack(list(rows.values())) > 0
    Y = np.vstack([U[name] @ V > 0 for name in rows])
    common = np.broadcast_to(X.mean(0) > 0.5, X.shape)

    def figures(Y):
        return (
            f"{100 * (X != Y).sum() / X.sum():.1f} wrong cells per 100 ones",
            *((f"precision {(X & Y).sum() / Y.sum():.3f}",) if Y.any() else ()),
            f"recall {(X & Y).sum() / X.sum():.3f}",
        )

    main, worst = cards(out)[:2]
    own = figures(Y)
    assert main[0] == own[0].split()[0]
    assert main[2].startswith("; ".join(own[1:]))
    assert main[2].endswith(": " + ", ".join(figures(common)))
    assert "sum of squares" not in (out / "report.html").read_text()
    owners = table(out, "wrong per 100 ones")
    for name in rows:
        wrong = 100 * ((U[name] @ V > 0) != (rows[name] > 0)).sum() / rows[name].sum()
        assert owners[name]["wrong per 100 ones"] == f"{wrong:.1f}"
    assert worst[2].startswith(max(rows, key=lambda name: float(owners[name]["relative error"])))
    features = table(out, "wrong cells per 100 ones")
    for j in range(7):
        wrong = 100 * (X[:, j] != Y[:, j]).sum() / X[:, j].sum()
        assert next(iter(features[f"lab{j}"].values())) == f"{wrong:.1f}"


def ratings():
    rng = np.random.default_rng(3)
    found = {}
    for name, n in zip(OWNERS, (25, 20, 30), strict=True):
        R = np.rint(1 + 4 * rng.beta(2, 1, size=(n, 3)) @ rng.dirichlet([0.4] * 3, 18).T)
        found[name] = sparse.csr_array(np.clip(R, 1, 5) * (rng.random((n, 18)) < 0.6))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ratings", "lists"])
def test_recommender_reports(kind, tmp_path):
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    owners = ratings()
    for name, R in owners.items():
        C = R.tocoo()
        lines = [f"{i},{j},{x:g}" for i, j, x in zip(C.row, C.col, C.data, strict=True)]
        (data / f"{name}.csv").write_text("\n".join(["userId,movieId,rating", *lines]) + "\n")
    from fedfactor import algorithms

    method = algorithms.PooledCF(2) if kind == "ratings" else algorithms.PooledEASE()
    words = ("-a", "pooled-cf", "-k", 2) if kind == "ratings" else ("-a", "pooled-ease")
    call("fit", data, *words, "--seed", 0, "-o", out, "-q")
    record = json.loads((out / "shared" / "run.json").read_text())
    parts = {
        name: hold_out(owners[name], 0.2, np.random.default_rng([22, 0, 0, place]), keep_items=False)
        for place, name in enumerate(sorted(owners))
    }
    train = fedfactor.Federation({name: kept for name, (kept, _) in parts.items()}, missing_values="unstored")
    values = np.concatenate([R.data for R in owners.values()])

    def judged(algorithm, rounds):
        run = fedfactor.run(algorithm, train, seed=0, rounds=rounds)
        found = []
        for name, (kept, held) in parts.items():
            scores = np.asarray(run.factors[name].U @ run.factors[name].V, np.float64)
            ties = 1e-9 * np.arange(18)  # of equal scores the first item comes first
            scores = scores if kind == "ratings" else scores - ties
            if kind == "ratings":
                C = held.tocoo()
                gaps = np.clip(scores[C.row, C.col], values.min(), values.max()) - C.data
                found.append(np.sqrt(np.mean(gaps**2)))
                continue
            each = []
            for i in np.flatnonzero(np.diff(held.indptr)):
                free = np.flatnonzero(kept[[i]].toarray()[0] == 0)
                liked = held[[i]].toarray()[0][free] != 0
                each.append(ndcg_score([liked.astype(float)], [scores[i, free]], k=10))
            found.append(np.mean(each))
        return float(np.mean(found))

    simple = algorithms.Biases() if kind == "ratings" else algorithms.Popularity()
    main = cards(out)[0]
    assert "sum of squares" not in (out / "report.html").read_text()
    assert main[1] == ("RMSE of held-out ratings" if kind == "ratings" else "NDCG@10, held out")
    assert float(main[0]) == pytest.approx(judged(method, record["rounds"]), abs=6e-5)
    assert float(main[2].split()[-1]) == pytest.approx(judged(simple, None), abs=6e-5)


def test_a_gain_sentence_does_not_contradict_its_figures():
    equal = gain_sentence({"a": (0.18261, 0.18259), "b": (0.2, 0.2)})
    assert equal == "0 of 2 owners gain. No difference: a, b."
    assert "gain is that of" not in gain_sentence({"oslo": (0.3614, 0.3898), "bern": (0.1, 0.2)})


def test_the_last_round_and_the_final_error_agree_or_are_explained():
    assert last_round_differs(0.18301, 0.18302) == ""
    assert "0.1830" in last_round_differs(0.17794, 0.1830)
