"""Where ``fedfactor fit`` begins: ``--from`` an earlier result, or ``--n-init`` starts."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from fedfactor.cli.main import app
from fedfactor.io.result_folder import read_components
from tests.command_line import CliRunner

pytestmark = pytest.mark.slow


@pytest.fixture
def owners(tmp_path):
    """Write three owners' tables, and a fourth that comes later with its columns in another order."""
    rng = np.random.default_rng(0)
    X = rng.gamma(0.7, 1, (200, 3)) @ rng.gamma(0.5, 1, (3, 8)) + 0.05 * rng.random((200, 8))
    names = [f"lab {j}" for j in range(8)]
    paths = []
    for place, name in enumerate("abcd"):
        rows = X[50 * place : 50 * place + 50]
        order = list(range(8))[::-1] if name == "d" else list(range(8))
        path = tmp_path / f"{name}.csv"
        lines = [",".join(names[j] for j in order), *(",".join(f"{row[j]:.6f}" for j in order) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
        paths.append(str(path))
    return paths


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def record(folder):
    return json.loads((folder / "shared" / "run.json").read_text())


def fit(*words):
    return run("fit", *words, "--seed", 0, "--no-report")


def test_a_start_at_an_earlier_result_needs_fewer_rounds_and_names_it(owners, tmp_path):
    first, second, anew = tmp_path / "first", tmp_path / "second", tmp_path / "anew"
    assert fit(*owners[:3], "-k", 3, "-o", first).exit_code == 0
    # The later owner comes first, so that the columns stand in its order.
    assert fit(owners[3], *owners[:3], "--from", first, "-o", second).exit_code == 0
    assert fit(owners[3], *owners[:3], "-k", 3, "-o", anew).exit_code == 0
    assert read_components(second)[0].shape == (3, 8)  # the rank is that of the earlier result
    assert record(second)["rounds"] < record(anew)["rounds"]
    assert record(second)["relative_error"] < 1.01 * record(anew)["relative_error"]
    checksum = hashlib.sha256((first / "shared" / "components.safetensors").read_bytes()).hexdigest()
    assert record(second)["asked"]["begun_from"] == {
        "components": f"sha256:{checksum}",
        "algorithm": "PooledNMF",
        "seed": 0,
        "rounds": record(first)["rounds"],
    }
    assert f"begun at components of a run with seed 0: sha256:{checksum}" in " ".join(
        run("info", second).output.split()
    )


def test_units_of_a_scaled_result_are_kept(owners, tmp_path):
    """Columns are divided by what all owners of the run have: components follow from one scale to the other."""
    first, second = tmp_path / "first", tmp_path / "second"
    scaled = ("--scale", "mean")
    assert fit(*owners[:3], "-k", 3, *scaled, "-o", first).exit_code == 0
    done = fit(*owners, "--from", first, *scaled, "--rounds", 1, "--tol", 0, "-o", second)
    assert done.exit_code == 0, done.output
    assert record(second)["relative_error"] < 1.1 * record(first)["relative_error"]
    other = fit(*owners, "--from", first, "-o", tmp_path / "other")
    assert other.exit_code == 2
    assert "were prepared by scale mean, these by nothing" in " ".join(other.output.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-a", "fnmf", "-k", "3"), "--from starts pooled-nmf, not FNMF"),
        (("--n-init", "3"), "--from is one start"),
        (("-k", "2"), "start at 3 components of 8 features, but it has n_components=2"),
        (("--engine", "dask"), "--from belongs to --engine local"),
        (("--drop", "lab 7"), "has a column 'lab 7' that is not here"),
        (("--privacy", "dp", "--epsilon", "1", "--unit", "row"), "--from starts at components that rows have shaped"),
    ],
)
def test_what_cannot_begin_there_is_refused(owners, tmp_path, words, said):
    first = tmp_path / "first"
    assert fit(*owners[:3], "-k", 3, "--rounds", 2, "-o", first).exit_code == 0
    done = fit(*owners, "--from", first, *words, "-o", tmp_path / "second")
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


def test_a_folder_that_is_no_result_is_named(owners, tmp_path):
    done = fit(*owners, "--from", tmp_path / "nothere", "-o", tmp_path / "second")
    assert done.exit_code == 2
    assert "nothere" in done.output


def test_the_best_of_several_starts_is_kept(owners, tmp_path):
    errors = {}
    for n_init in (1, 4):
        words = ("-k", 3, "--rounds", 3, "--tol", 0, "--set", "start=random", "--n-init", n_init)
        assert fit(*owners[:3], *words, "-o", tmp_path / str(n_init)).exit_code == 0
        errors[n_init] = record(tmp_path / str(n_init))["relative_error"]
    assert errors[4] < errors[1]


def test_owners_own_components_take_several_starts_by_themselves(owners, tmp_path):
    """As the estimator does: its result is that of the command, to the last bit."""
    import fedfactor
    from fedfactor.data import open_files

    out = tmp_path / "out"
    words = ("-k", 2, "--set", "n_private=1", "--rounds", 4, "--tol", 0, "--no-gain")
    assert fit(*owners[:3], *words, "-o", out).exit_code == 0
    model = fedfactor.PooledNMF(2, n_private=1, rounds=4, tol=0, random_state=0).fit(open_files(owners[:3]))
    assert np.array_equal(read_components(out)[0], model.components_)


def test_methods_of_one_start_and_settings_that_are_options_say_so(owners, tmp_path):
    done = fit(*owners[:3], "-a", "fnmf", "-k", 2, "--n-init", 3, "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert "FNMF has no further starts" in done.output
    done = fit(*owners[:3], "-k", 2, "--set", "n_init=3", "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert "PooledNMF has no setting 'n_init'. Use --n-init." in " ".join(done.output.split())
    done = fit(*owners[:3], "-k", 2, "--n-init", 0, "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert "--n-init" in done.output
