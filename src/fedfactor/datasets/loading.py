"""Named real data sets, from a folder of local copies or, for three of them, from their public home.

Set ``FEDFACTOR_DATA`` to the folder. None of these data are shipped with the library.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.errors import DataError
from fedfactor.datasets.public_sources import ORIGINALS, download_files, fashion_subset, read_ratings
from fedfactor.io.read import load_table

__all__ = ["Dataset", "available", "data_folder", "load_dataset"]


@dataclass(frozen=True, slots=True)
class Dataset:
    """A real data set.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n, m)
        Rows are samples, users or documents. HapMap's missing calls are NaN; unstored MovieLens cells are unrated.
    y : ndarray of shape (n,) or None
        Class of each row, where there are classes.
    features : tuple of str or None
        Column names, where they are known.
    name, source : str
        Its name here, and where the original lives.
    """

    X: Any
    y: np.ndarray | None
    features: tuple[str, ...] | None
    name: str
    source: str


@dataclass(frozen=True, slots=True)
class _Entry:
    file: str
    source: str
    y: str | None = None  # "key", or "other file:key"
    features: str | None = None


_MEMBERS = "role mining sets of Ene et al. (SACMAT 2008), HP Labs"
_FIMI = "Frequent Itemset Mining Dataset Repository, fimi.uantwerpen.be"
_ROLES = ("americas_small", "apj", "emea", "hc", "domino", "fire1")
_ENTRIES = {
    "fashion_mnist": _Entry(
        "images/fashion_mnist_20k.npz",
        "Xiao, Rasul, Vollgraf (2017), github.com/zalandoresearch/fashion-mnist: first 10,000 of train, then test",
        "y",
    ),
    "cbcl_faces": _Entry(
        "images/cbcl_faces_19x19.npz", "MIT Center for Biological and Computational Learning, face set 1"
    ),
    "orl_faces": _Entry("images/orl_faces_32x32.npz", "AT&T Laboratories Cambridge, database of faces", "y"),
    "yale_faces": _Entry("images/yaleb_32x32.npz", "Extended Yale Face Database B", "y"),
    "newsgroups": _Entry(
        "text/20newsgroups_bow.npz",
        "20 Newsgroups (Lang 1995), word counts",
        "text/20newsgroups_meta.npz:y",
        "text/20newsgroups_meta.npz:vocab",
    ),
    "reuters": _Entry(
        "text/reuters395_bow.npz", "395 Reuters stories, word counts", None, "text/reuters395_meta.npz:vocab"
    ),
    "golub": _Entry(
        "gene/golub_all_aml.npz", "Golub et al. (1999), doi:10.1126/science.286.5439.531", "samples", "genes"
    ),
    "mouse_bladder": _Entry(
        "gene/mouse_bladder_counts.npz",
        "Mouse Cell Atlas, bladder: Han et al. (2018), doi:10.1016/j.cell.2018.02.001",
        "gene/mouse_bladder_labels.npz:y",
    ),
    "pbmc68k": _Entry(
        "gene/pbmc68k_reduced_log.npz",
        "10x Genomics PBMC 68k, reduced: Zheng et al. (2017), doi:10.1038/ncomms14049",
        "gene/pbmc68k_reduced_meta.npz:y",
        "gene/pbmc68k_reduced_meta.npz:genes",
    ),
    "hapmap3": _Entry(
        "gene/hapmap3_snps.npz", "International HapMap 3 (2010), doi:10.1038/nature09298", "population", "snps"
    ),
    "mushroom": _Entry("binary/mushroom.npz", _FIMI),
    "chess": _Entry("binary/chess.npz", _FIMI),
    "roles": _Entry("binary/role_americas_small.npz", _MEMBERS),
    **{f"roles_{name}": _Entry(f"binary/role_{name}.npz", _MEMBERS) for name in _ROLES},
    "ca_grqc": _Entry(
        "graph/ca_grqc_coauthor.npz", "SNAP ca-GrQc: Leskovec et al. (2007), snap.stanford.edu/data/ca-GrQc.html"
    ),
    "movielens_small": _Entry(
        "movielens-latest-small/ratings.csv.gz",
        "GroupLens, MovieLens latest-small (2018-09): Harper, Konstan (2015), doi:10.1145/2827872",
    ),
    "movielens_1m": _Entry(
        "movielens-1m/ratings.dat",
        "GroupLens, MovieLens 1M (2003): Harper, Konstan (2015), doi:10.1145/2827872",
    ),
}


def data_folder() -> Path:
    """Return the folder of local copies: ``FEDFACTOR_DATA``, or the user's cache folder when it is not set.

    Returns
    -------
    Path
        It may not exist.

    Examples
    --------
    >>> from fedfactor.datasets.loading import data_folder
    >>> bool(data_folder().name)
    True
    """
    named = os.environ.get("FEDFACTOR_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else cache / "fedfactor"


def available() -> dict[str, bool]:
    """Return which named data sets are present in the data folder.

    Returns
    -------
    dict of str to bool
        Every known name.

    Examples
    --------
    >>> from fedfactor.datasets.loading import available
    >>> "golub" in available()
    True
    """
    folder = data_folder()
    return {
        name: all(path.is_file() for path in _needed(folder, name)) or _has_original(folder, name) for name in _ENTRIES
    }


def load_dataset(name: str, *, download: bool = False) -> Dataset:
    """Load a real data set by name.

    Parameters
    ----------
    name : str
        One of the keys of :func:`available`. ``roles`` is ``roles_americas_small``.
    download : bool, default=False
        Fetch the public original into the data folder when it is not there, and check its SHA-256. Only
        ``fashion_mnist``, ``movielens_small`` and ``movielens_1m``; of the others ``Dataset.source`` says where the
        original lives.

    Returns
    -------
    Dataset
        Rows are samples, users or documents, also for ``golub`` (38 samples × 5,000 genes).

    Raises
    ------
    DataError
        The name is unknown, or its file is not there; the message names the file.

    Examples
    --------
    >>> from fedfactor.datasets.loading import available, load_dataset
    >>> if available()["mushroom"]:
    ...     assert load_dataset("mushroom").X.shape == (8124, 119)
    """
    if name not in _ENTRIES:
        raise DataError(f"No data set is called {name!r}. Known are {', '.join(sorted(_ENTRIES))}.")
    entry = _ENTRIES[name]
    folder = data_folder()
    absent = [path for path in _needed(folder, name) if not path.is_file()]
    if absent and name in ORIGINALS and (download or _has_original(folder, name)):
        download_files(name, folder)
        if name == "fashion_mnist":
            X, y = fashion_subset(folder)
            return Dataset(X, y, None, name, entry.source)
    elif absent:
        fetchable = " or call load_dataset(..., download=True)," if name in ORIGINALS else ""
        raise DataError(
            f"The data set {name!r} is not here: {absent[0]} does not exist. Set FEDFACTOR_DATA to a folder that holds "
            f"{absent[0].relative_to(folder)},{fetchable} or get the original: {entry.source}."
        )
    if name.startswith("movielens"):
        X, features = read_ratings(folder, name)
        return Dataset(X, None, features, name, entry.source)
    X = load_table(folder / entry.file).X
    y = _side(folder, entry, entry.y)
    features = _side(folder, entry, entry.features)
    if name == "golub" and y is not None:
        X = np.ascontiguousarray(X.T)
        y = np.array([sample.split("_")[0] for sample in y])
    if name == "hapmap3":
        X[X == 255] = np.nan
    return Dataset(X, y, None if features is None else tuple(features.tolist()), name, entry.source)


def _needed(folder: Path, name: str) -> list[Path]:
    entry = _ENTRIES[name]
    sides = [side.partition(":")[0] for side in (entry.y, entry.features) if side and ":" in side]
    return [folder / file for file in dict.fromkeys([entry.file, *sides])]


def _has_original(folder: Path, name: str) -> bool:
    return name in ORIGINALS and all((folder / original.path).is_file() for original in ORIGINALS[name])


def _side(folder: Path, entry: _Entry, where: str | None) -> np.ndarray | None:
    if where is None:
        return None
    file, _, key = where.rpartition(":")
    path = folder / (file or entry.file)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return arrays[key]
    except (ValueError, OSError, KeyError) as error:
        raise DataError(f"{path} has no readable array {key!r} ({error}). Copy the file again.") from error
