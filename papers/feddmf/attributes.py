"""The title's task: what a user is like, told from the user vector that a client has learnt."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from fedfactor.core.errors import DataError
from fedfactor.core.random_streams import stream
from fedfactor.datasets.loading import data_folder, load_dataset
from fedfactor.evaluation.attribute_prediction import area_under_curve, predict_attribute
from fedfactor.recommend.feddmf.network import probabilities
from papers.feddmf.methods import train
from papers.feddmf.split import Split

__all__ = ["affinity", "genres", "measure_attributes"]

GENRES = ("Horror", "Sci-Fi", "Romance", "Children", "Crime", "Musical")


def genres(least: int = 20) -> dict[str, np.ndarray]:
    """Return for each genre which movies belong to it, in the order of :func:`~.split.movies`."""
    folder = data_folder() / "movielens-latest-small"
    plain, archive = folder / "movies.csv.gz", folder / "ml-latest-small.zip"
    try:
        if plain.is_file():
            text = gzip.decompress(plain.read_bytes()).decode()
        else:
            with zipfile.ZipFile(archive) as file:
                text = file.read("ml-latest-small/movies.csv").decode()
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"The genres of the movies in {folder} cannot be read ({error}).") from error
    known = {line[0]: set(line[2].split("|")) for line in csv.reader(io.StringIO(text))}
    data = load_dataset("movielens_small")
    often = np.bincount(data.X.indices, minlength=data.X.shape[1]) >= least
    names = [name for name, keep in zip(data.features or (), often, strict=True) if keep]
    return {genre: np.array([genre in known[name] for name in names]) for genre in GENRES}


def affinity(part: Split, name: str, genre: np.ndarray) -> np.ndarray:
    """Tell which users of a client like a genre more than its median user does, judged by items the client has not.

    Users without any interaction there count as liking it less.
    """
    columns = part.foreign(name)
    seen = part.truth(name, columns)
    share = seen[:, genre[columns]].sum(1) / np.maximum(seen.sum(1), 1)
    return share > np.median(share)


def measure_attributes(
    part: Split, least: int, settings: Mapping[str, Mapping[str, Any]], *, seed: int
) -> dict[str, Any]:
    """Return the mean AUC over clients and genres for user vectors of each method.

    For methods that read foreign items there is a second figure: the share of a genre in the probabilities that the
    client gives to foreign items.
    """
    known = genres(least)
    found: dict[str, Any] = {}
    for method, each in settings.items():
        result = train(part, each, seed=seed)
        vectors, shares = [], []
        for name in part.rows:
            kept, columns = cast("Any", result.factors[name]), part.foreign(name)
            guess = probabilities(kept.network, kept.U, np.ascontiguousarray(kept.V[:, columns].T))
            for genre, member in known.items():
                truth = affinity(part, name, member)
                if truth.all() or not truth.any() or not member[columns].any():
                    continue  # no such movie among these, so that no user can be told from another
                rng = stream(f"feddmf folds {name} {genre}", seed)
                vectors.append(area_under_curve(truth, predict_attribute(kept.U, truth, seed=rng)))
                shares.append(area_under_curve(truth, guess[:, member[columns]].sum(1) / guess.sum(1)))
        found[method] = {"auc_vectors": float(np.mean(vectors)), "auc_foreign_share": float(np.mean(shares))}
    return found
