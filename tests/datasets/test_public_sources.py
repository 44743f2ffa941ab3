"""Named data sets, from local copies and from originals."""

from __future__ import annotations

import gzip
import hashlib
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedfactor.core.errors import DataError
from fedfactor.datasets import public_sources as originals
from fedfactor.datasets.loading import available, load_dataset
from fedfactor.datasets.public_sources import Original, download_files, read_ratings

SHAPES = {
    "fashion_mnist": (20000, 784),
    "cbcl_faces": (2429, 361),
    "orl_faces": (400, 1024),
    "yale_faces": (2414, 1024),
    "newsgroups": (18846, 5000),
    "reuters": (395, 4258),
    "golub": (38, 5000),
    "mouse_bladder": (2100, 20670),
    "pbmc68k": (700, 765),
    "hapmap3": (957, 14079),
    "mushroom": (8124, 119),
    "chess": (3196, 75),
    "roles": (3477, 1587),
    "roles_apj": (2044, 1164),
    "ca_grqc": (5242, 5242),
    "movielens_small": (610, 9724),
}


@pytest.mark.parametrize("name", SHAPES)
def test_present_sets_have_their_published_shape(name: str) -> None:
    if not available()[name]:
        pytest.skip(f"{name} is not in the data folder: set FEDFACTOR_DATA to a folder of local copies")
    data = load_dataset(name)
    assert data.X.shape == SHAPES[name]
    assert data.X.dtype in (np.float32, np.float64)
    assert data.y is None or len(data.y) == len(range(data.X.shape[0]))
    assert data.features is None or len(set(data.features)) == data.X.shape[1]
    if name == "golub":
        assert dict(zip(*np.unique(data.y, return_counts=True), strict=True)) == {"ALL": 27, "AML": 11}
    if name == "hapmap3":
        assert np.nanmax(data.X) == 2
    if name == "movielens_small":
        assert (data.X.nnz, data.X.data.min(), data.X.data.max()) == (100_836, 0.5, 5.0)


def test_absent_sets_say_which_file_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFACTOR_DATA", str(tmp_path))
    assert not any(available().values())
    with pytest.raises(DataError, match=r"golub_all_aml.npz does not exist.*Set FEDFACTOR_DATA"):
        load_dataset("golub")
    with pytest.raises(DataError, match="download=True"):
        load_dataset("fashion_mnist")
    with pytest.raises(DataError, match="No data set is called 'iris'"):
        load_dataset("iris")


def test_a_set_needs_all_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDFACTOR_DATA", str(tmp_path))
    (tmp_path / "text").mkdir()
    np.savez(tmp_path / "text/reuters395_bow.npz", X=np.eye(2))
    assert not available()["reuters"]
    np.savez(tmp_path / "text/reuters395_meta.npz", vocab=["pope", "church"])
    assert available()["reuters"]
    assert load_dataset("reuters").features == ("pope", "church")
    np.savez(tmp_path / "text/reuters395_meta.npz", other=[1])
    with pytest.raises(DataError, match="no readable array 'vocab'"):
        load_dataset("reuters")


def _served(folder: Path, content: bytes, sha256: str | None = None) -> Original:
    source = folder / "source.bin"
    source.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest() if sha256 is None else sha256
    return Original("got/file.bin", source.as_uri(), digest, 1000)


def test_downloads_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "got/file.bin"
    monkeypatch.setitem(originals.ORIGINALS, "x", (_served(tmp_path, b"right", "0" * 64),))
    with pytest.raises(DataError, match="not the expected file: its SHA-256 is"):
        download_files("x", tmp_path)
    assert not target.exists()
    monkeypatch.setitem(originals.ORIGINALS, "x", (_served(tmp_path, b"x" * 2000),))
    with pytest.raises(DataError, match="larger than 1,000 bytes"):
        download_files("x", tmp_path)
    monkeypatch.setitem(originals.ORIGINALS, "x", (_served(tmp_path, b"right"),))
    download_files("x", tmp_path)
    assert target.read_bytes() == b"right"
    (tmp_path / "source.bin").unlink()
    download_files("x", tmp_path)  # it is here already: nothing is fetched
    target.write_bytes(b"wrong")
    with pytest.raises(DataError, match="Delete it"):
        download_files("x", tmp_path)
    target.unlink()
    with pytest.raises(DataError, match="could not be fetched"):
        download_files("x", tmp_path)


def test_originals_come_over_https_with_full_checksums() -> None:
    for files in originals.ORIGINALS.values():
        for file in files:
            assert file.url.startswith("https://")
            assert len(bytes.fromhex(file.sha256)) == 32


def _idx(values: np.ndarray) -> bytes:
    return gzip.compress(
        bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}i", *values.shape) + values.tobytes()
    )


def test_fashion_originals_become_the_same_subset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 9, shape, dtype=np.uint8) for shape in ((10_050, 2, 2), (10_050,), (30, 2, 2), (30,))]
    files = []
    for original, values in zip(originals.ORIGINALS["fashion_mnist"], parts, strict=True):
        content = _idx(values)
        (tmp_path / original.path).parent.mkdir(exist_ok=True)
        (tmp_path / original.path).write_bytes(content)
        files.append(Original(original.path, original.url, hashlib.sha256(content).hexdigest(), original.limit))
    monkeypatch.setitem(originals.ORIGINALS, "fashion_mnist", tuple(files))
    monkeypatch.setenv("FEDFACTOR_DATA", str(tmp_path))
    data = load_dataset("fashion_mnist")
    np.testing.assert_array_equal(data.X, np.r_[parts[0][:10_000], parts[2]].reshape(10_030, 4))
    np.testing.assert_array_equal(data.y, np.r_[parts[1][:10_000], parts[3]])


def test_ratings_from_either_file(tmp_path: Path) -> None:
    content = b"userId,movieId,rating,timestamp\n1,10,4.0,9\n1,20,0.5,9\n3,10,5.0,9\n"
    folder = tmp_path / "movielens-latest-small"
    folder.mkdir()
    with zipfile.ZipFile(folder / "ml-latest-small.zip", "w") as archive:
        archive.writestr("ml-latest-small/ratings.csv", content)
    from_archive, features = read_ratings(tmp_path)
    assert features == ("10", "20")
    np.testing.assert_array_equal(from_archive.toarray(), [[4, 0.5], [5, 0]])
    (folder / "ratings.csv.gz").write_bytes(gzip.compress(content))
    np.testing.assert_array_equal(read_ratings(tmp_path)[0].toarray(), from_archive.toarray())
    (folder / "ratings.csv.gz").write_bytes(b"noise")
    with pytest.raises(DataError, match="cannot be read"):
        read_ratings(tmp_path)
