"""Writing and reading back what a run leaves."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pytest

from fedfactor.core.errors import DataError
from fedfactor.io.result_folder import owner_from_file, owner_to_file, read_components, read_private, write_factors

OWNERS = ["north", "St. Mary/Köln", "..", ".hidden", "a b%2F", "NUL\0byte", "医院", "-", "\udcff"]


def test_round_trip(tmp_path: Path) -> None:
    V = np.arange(6, dtype=np.float32).reshape(3, 2).T  # not contiguous
    private = {name: np.full((2, 2), float(i)) for i, name in enumerate(OWNERS)}
    private["two"] = {"U": np.eye(2), "W": np.ones((2, 3))}
    out = write_factors(tmp_path / "new" / "out", V, features=["a", "b", "ü"], private=private, run={"seed": 1})
    back, features = read_components(out)
    assert back.dtype == np.float32
    np.testing.assert_array_equal(back, V)
    assert features == ("a", "b", "ü")
    for name in OWNERS:
        np.testing.assert_array_equal(read_private(out, name)["U"], private[name])
    np.testing.assert_array_equal(read_private(out, "two")["W"], np.ones((2, 3)))
    files = list((out / "private").iterdir())
    assert {owner_from_file(file.name) for file in files} == set(private)
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert stat.S_IMODE((out / "private").stat().st_mode) == 0o700
    assert sorted(path.name for path in out.iterdir()) == ["private", "shared"]
    shared = sorted(path.name for path in (out / "shared").iterdir())
    assert shared == ["components.safetensors", "features.json", "run.json"]


@pytest.mark.parametrize("owner", OWNERS)
def test_owner_names_are_safe_and_reversible(owner: str) -> None:
    name = owner_to_file(owner)
    assert Path(name).name == name
    assert name.isascii()
    assert not name.startswith(".")
    assert owner_from_file(name) == owner


@pytest.mark.parametrize("owner", ["", "x" * 300, "ö" * 60])
def test_impossible_owner_names_fail_before_anything_is_written(tmp_path: Path, owner: str) -> None:
    with pytest.raises(DataError, match="1 to 200"):
        write_factors(tmp_path / "out", np.eye(2), private={owner: np.eye(2)})
    assert not (tmp_path / "out").exists()


def test_run_record_is_strict_json(tmp_path: Path) -> None:
    run = {"loss": np.array([1.0, np.nan]), "epsilon": np.inf, "n": np.int64(3), "names": ("a",), 4: None}
    out = write_factors(tmp_path, np.eye(2), run=run)
    text = (out / "shared" / "run.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "format": 2, "loss": [1.0, None], "epsilon": "inf", "n": 3, "names": ["a"], "4": None,
    }  # fmt: skip


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="1 feature names were given for 2"):
        write_factors(tmp_path, np.eye(2), features=["a"])
    with pytest.raises(DataError, match=r"nowhere holds no result \(there is no such folder"):
        read_components(tmp_path / "nowhere")
    out = write_factors(tmp_path / "out", np.eye(2), features=["a", "b"])
    (out / "shared" / "features.json").write_text('["a"]')
    with pytest.raises(DataError, match="does not name the 2 columns"):
        read_components(out)
    (out / "shared" / "features.json").write_text("[")
    with pytest.raises(DataError, match="not JSON"):
        read_components(out)
    (out / "shared" / "components.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(DataError, match="not a sound safetensors"):
        read_components(out)
