from __future__ import annotations

import gzip

import numpy as np
import pytest
from scipy import sparse

from fedfactor.recommend.feddmf.network import probabilities
from papers.feddmf import cells, run
from papers.feddmf.attributes import GENRES
from papers.feddmf.cells import Task, figure
from papers.feddmf.methods import METHODS, SIMPLE, best_f1, f1, measure, settings_for, train
from papers.feddmf.split import split
from papers.feddmf.tables import markdown

pytest.importorskip("torch")

X = sparse.csr_array((np.random.default_rng(0).random((40, 30)) < 0.3).astype(np.float32))


def test_no_client_sees_a_cell_that_it_is_tested_on():
    part = split(X, clients=3, common=0.4, seed=1)
    federation = part.federation()
    for name in part.rows:
        shard, foreign = federation.shard(name), part.foreign(name)
        assert not np.intersect1d(shard.held, foreign).size
        assert shard.X.toarray()[:, foreign].sum() == 0
        np.testing.assert_array_equal(shard.X.toarray()[:, shard.held], part.truth(name, shard.held))
    assert sorted(np.concatenate(list(part.rows.values())).tolist()) == list(range(40))
    held_back = part.pooled(honest=True).shard("all").holdout
    assert held_back.sum() == sum(len(rows) * len(part.foreign(name)) for name, rows in part.rows.items())


@pytest.mark.parametrize("method", [*METHODS, *SIMPLE])
def test_every_method_gives_figures(method):
    tiny = {"n_components": 3, "hidden": 4, "batch_size": 128}
    settings = {} if method in SIMPLE else settings_for({"refine": 1, **METHODS[method]}, 3, **tiny)
    found = measure(split(X), method, settings, seed=0)
    assert set(found["foreign"]) == {"client 1", "client 2"}
    assert 0 <= found["f1_foreign"] <= found["f1_best_foreign"] <= 1


def test_the_table_shows_means_spreads_and_the_share_of_the_bound():
    base = {"x": 0.5, "f1_own": 0.5, "bytes_up": 0, "epochs": 3, "seconds": 1.0}
    figures = (("DMF, all data", 0.5, 0.6), ("B", 0.4, 0.5), ("B", 0.5, 0.7))
    rows = [{**base, "method": m, "f1_foreign": one, "f1_tuned_foreign": two} for m, one, two in figures]
    assert "| B | 0.500 ± 0.000 | 0.450 ± 0.050 (90%) | 0.600 ± 0.100 (100%) | 3 | 0.00 | 1.0 |" in markdown(rows)


def test_the_tuned_threshold_is_taken_from_own_items_alone():
    part = split(X, seed=2)
    found = measure(part, "FedDMF", {"n_components": 3, "hidden": 4, "epochs": 2, "batch_size": 128}, seed=0)
    kept = train(part, {"n_components": 3, "hidden": 4, "epochs": 2, "batch_size": 128}, seed=0).factors["client 1"]
    guess = {
        word: probabilities(kept.network, kept.U, np.ascontiguousarray(kept.V[:, columns].T))
        for word, columns in (("own", part.own["client 1"]), ("foreign", part.foreign("client 1")))
    }
    threshold = best_f1(part.truth("client 1", part.own["client 1"]), guess["own"])[1]
    expected = f1(part.truth("client 1", part.foreign("client 1")), guess["foreign"] >= threshold)
    assert found["tuned_foreign"]["client 1"] == expected


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Ratings of 60 users and 45 movies, and the movies' genres, in the files of MovieLens."""
    rng = np.random.default_rng(0)
    ratings, films = ["userId,movieId,rating,timestamp"], ["movieId,title,genres"]
    films += [f"{movie},Film {movie},{GENRES[movie % 6]}|{GENRES[(movie + 1) % 6]}" for movie in range(45)]
    ratings += [f"{u},{movie},3.0,0" for u in range(60) for movie in rng.choice(45, 25, replace=False)]
    where = tmp_path / "data" / "movielens-latest-small"
    where.mkdir(parents=True)
    (where / "ratings.csv.gz").write_bytes(gzip.compress("\n".join(ratings).encode()))
    (where / "movies.csv.gz").write_bytes(gzip.compress("\n".join(films).encode()))
    monkeypatch.setenv("FEDFACTOR_DATA", str(tmp_path / "data"))
    return tmp_path


@pytest.mark.slow
def test_figures_are_made_only_once(folder, monkeypatch):
    tiny = {"n_components": 2, "hidden": 2, "epochs": 1, "batch_size": 256, "runs": 2}
    tasks = [Task(20, seed, {}, "FedDMF", tiny) for seed in range(2)]
    for task in tasks:
        figure(folder, task)
    monkeypatch.setattr(cells, "measure", None)  # a figure that is there is read, not made
    made = [figure(folder, task) for task in tasks]
    assert (made[0]["epochs"], made[0]["rounds"]) == (1, 6)  # two runs of three exchanges
    assert made[0]["bytes_up"] > 0


@pytest.mark.slow
def test_every_study_writes_its_table(folder):
    run.reproduce(folder / "out", seeds=1, passes=4, only=(*run.STUDIES, "attributes"), say=lambda line: None)
    for name in (*run.STUDIES, "attributes"):
        assert (folder / "out" / f"{name}.md").read_text().count("\n") > 2
    assert "| 8 | FedDMF |" in (folder / "out" / "clients.md").read_text()
    stopped = run.reproduce(folder / "two", seeds=1, passes=6, patience=1, only=("baselines",), say=lambda line: None)
    assert "DMF, all data" in (stopped / "baselines.csv").read_text()
    with pytest.raises(ValueError, match="no study 'bases'"):
        run.reproduce(folder / "out", only=("bases",))
