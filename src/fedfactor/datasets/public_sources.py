"""Public originals: where they live, their checksums, and how they become matrices."""

from __future__ import annotations

import gzip
import hashlib
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.errors import DataError

__all__ = ["ORIGINALS", "Original", "download_files", "fashion_subset", "read_ratings", "read_times"]


@dataclass(frozen=True, slots=True)
class Original:
    """A public file: where it goes in the data folder, where it comes from, its SHA-256 and its size in bytes."""

    path: str
    url: str
    sha256: str
    limit: int


_FASHION = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
ORIGINALS: dict[str, tuple[Original, ...]] = {
    "fashion_mnist": tuple(
        Original(f"fashion-mnist/{name}", f"{_FASHION}/{name}", digest, 64 << 20)
        for name, digest in {
            "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        }.items()
    ),
    "movielens_small": (
        Original(
            "movielens-latest-small/ml-latest-small.zip",
            "https://files.grouplens.org/datasets/movielens/ml-latest-small.zip",
            "696d65a3dfceac7c45750ad32df2c259311949efec81f0f144fdfb91ebc9e436",
            16 << 20,
        ),
    ),
    "movielens_1m": (
        Original(
            "movielens-1m/ml-1m.zip",
            "https://files.grouplens.org/datasets/movielens/ml-1m.zip",
            "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
            16 << 20,
        ),
    ),
}


def download_files(name: str, folder: Path) -> None:
    """Fetch those originals of a data set that are not there, and check all of them.

    Parameters
    ----------
    name : str
        A key of ``ORIGINALS``.
    folder : Path
        The data folder.

    Raises
    ------
    DataError
        If a file cannot be fetched or is not the one expected; nothing is kept of it then.
    """
    for original in ORIGINALS[name]:
        path = folder / original.path
        content = path.read_bytes() if path.is_file() else _download(original)
        found = hashlib.sha256(content).hexdigest()
        if found != original.sha256:
            raise DataError(
                f"{path if path.is_file() else original.url} is not the expected file: its SHA-256 is {found}, not "
                f"{original.sha256}. Delete it if it is here and try again; the original may have changed."
            )
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content, 0o644)


def _download(original: Original) -> bytes:
    try:
        with urllib.request.urlopen(original.url, timeout=60) as answer:
            content = answer.read(original.limit + 1)
    except OSError as error:
        raise DataError(
            f"{original.url} could not be fetched ({error}). Fetch it by hand and save it as {original.path}."
        ) from error
    if len(content) > original.limit:
        raise DataError(f"{original.url} is larger than {original.limit:,} bytes: not the file expected here.")
    return content


def fashion_subset(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read the first 10,000 training images and the 10,000 test images of Fashion-MNIST.

    Parameters
    ----------
    folder : Path
        The data folder, with the originals in it.

    Returns
    -------
    X : ndarray of shape (20000, 784)
        Pixels 0 to 255, float32.
    y : ndarray of shape (20000,)
        Classes 0 to 9.
    """
    files = [folder / original.path for original in ORIGINALS["fashion_mnist"]]
    images = np.concatenate([_read_idx(files[0])[:10_000], _read_idx(files[2])])
    labels = np.concatenate([_read_idx(files[1])[:10_000], _read_idx(files[3])])
    return images.reshape(len(images), -1).astype(np.float32), labels


def _read_idx(path: Path) -> np.ndarray:
    """Read an IDX file of bytes: two zeros, type 8, the number of axes, their lengths (big-endian), the values."""
    with gzip.open(path) as file:
        content = file.read()
    axes = content[3] if content[:3] == b"\x00\x00\x08" else 0
    shape = np.frombuffer(content, ">i4", axes, offset=4)
    if not axes or len(content) != 4 + 4 * axes + int(np.prod(shape)):
        raise DataError(f"{path} is not an IDX file of bytes. Delete it and fetch it again.")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def read_ratings(folder: Path, name: str = "movielens_small") -> tuple[sparse.csr_array, tuple[str, ...]]:
    """Read MovieLens ratings as a users × movies matrix; what is not stored was not rated.

    Parameters
    ----------
    folder : Path
        The data folder, with the ratings file or the original archive in it.
    name : {"movielens_small", "movielens_1m"}

    Returns
    -------
    X : csr_array of shape (users, movies)
        Ratings up to 5, float32. Users and movies in the order of their numbers.
    features : tuple of str
        Movie numbers.
    """
    rows, columns, movies, ratings, _ = _read_cells(folder, name)
    shape = (int(rows.max()) + 1, len(movies))
    return sparse.csr_array(sparse.coo_array((ratings.astype(np.float32), (rows, columns)), shape=shape)), movies


def read_times(folder: Path, name: str = "movielens_small") -> sparse.csr_array:
    """Read when MovieLens ratings were given, in seconds, in the cells of :func:`read_ratings`.

    Parameters
    ----------
    folder : Path
        The data folder, with the ratings file or the original archive in it.
    name : {"movielens_small", "movielens_1m"}

    Returns
    -------
    csr_array of shape (users, movies)
    """
    rows, columns, movies, _, times = _read_cells(folder, name)
    return sparse.csr_array(sparse.coo_array((times, (rows, columns)), shape=(int(rows.max()) + 1, len(movies))))


# Where ratings may lie besides the archive, their name in the archive, the separator, and the lines before the first.
_RATINGS = {
    "movielens_small": ("movielens-latest-small/ratings.csv.gz", "ml-latest-small/ratings.csv", ",", 1),
    "movielens_1m": ("movielens-1m/ratings.dat", "ml-1m/ratings.dat", "::", 0),
}


def _read_cells(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray, tuple[str, ...], np.ndarray, np.ndarray]:
    file, member, separator, skip = _RATINGS[name]
    plain = folder / file
    archive = folder / ORIGINALS[name][0].path
    try:
        if plain.is_file():
            content = plain.read_bytes()
            text = (gzip.decompress(content) if plain.suffix == ".gz" else content).decode()
        else:
            with zipfile.ZipFile(archive) as packed:
                text = packed.read(member).decode()
        cells = [line.split(separator) for line in text.splitlines()[skip:]]
        users, movies, ratings, times = np.array(cells, dtype=np.float64).T
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(
            f"The MovieLens ratings in {plain.parent} cannot be read ({error}). Copy or fetch them again."
        ) from error
    names, columns = np.unique(movies.astype(np.int64), return_inverse=True)
    _, rows = np.unique(users.astype(np.int64), return_inverse=True)
    return rows, columns, tuple(map(str, names.tolist())), ratings, times
