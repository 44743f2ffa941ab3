from __future__ import annotations

import gzip
import json
import stat

import numpy as np
import pytest
from scipy import io, sparse

import fedfactor
from fedfactor.algorithms import FedAvgNMF, PooledNMF
from fedfactor.cli import app
from fedfactor.io.result_folder import read_components, read_private
from tests.command_line import CliRunner


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def fit(files, out, *words):
    return call("fit", files, "-k", 3, "--seed", 7, "--rounds", 8, "-o", out, *words)


def write(path, X):
    """Write rows in the format that the ending names."""
    names = [f"f{j}" for j in range(X.shape[1])]
    match path.suffix:
        case ".npy":
            np.save(path, X)
        case ".npz":
            np.savez(path, X=X)
        case ".mtx" | ".gz":
            io.mmwrite(path.with_suffix(".tmp.mtx"), sparse.coo_array(X), precision=17)
            data = path.with_suffix(".tmp.mtx").read_bytes()
            path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
            path.with_suffix(".tmp.mtx").unlink()
        case ".csv":
            lines = [",".join(names), *(",".join(map(repr, row)) for row in X.tolist())]
            path.write_text("\n".join(lines) + "\n")
        case ".parquet":
            pandas = pytest.importorskip("pandas")
            pytest.importorskip("pyarrow")
            pandas.DataFrame(X, columns=names).to_parquet(path)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".npy", ".npz", ".csv", ".parquet", ".mtx.gz"])
def test_same_as_in_python_whatever_the_format(tmp_path, rows, ending):
    paths = [tmp_path / f"{name}{ending}" for name in rows]
    for path, X in zip(paths, rows.values(), strict=True):
        write(path, X)
    done = call("fit", *paths, "-k", 3, "--seed", 7, "--rounds", 8, "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    run = fedfactor.run(PooledNMF(3), rows, rounds=8, seed=7)
    V, features = read_components(tmp_path / "out")
    np.testing.assert_allclose(V, run.V, rtol=1e-10, atol=1e-12)
    assert (features is not None) == (ending in (".csv", ".parquet"))
    for name in rows:
        U = read_private(tmp_path / "out", name)["U"]
        np.testing.assert_allclose(U, run.factors[name].U, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_what_lies_in_the_folder(files, tmp_path, rows):
    out = tmp_path / "out"
    done = fit(files, out)
    assert done.exit_code == 0, done.output
    found = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    private = [f"private/{name}.safetensors" for name in rows]
    shared = [f"shared/{name}" for name in ("components.safetensors", "features.json", "run.json")]
    assert found == sorted(["report.html", *shared, *private])
    assert all(stat.S_IMODE((out / name).stat().st_mode) == 0o600 for name in private)
    record = json.loads((out / "shared" / "run.json").read_text())
    assert (record["seed"], record["rounds"], record["clients"]) == (7, 8, 3)
    assert {name: about["rows"] for name, about in record["owners"].items()} == {n: len(X) for n, X in rows.items()}


@pytest.mark.slow
def test_the_summary_tells_the_truth(files, tmp_path, rows):
    done = fit(files, tmp_path / "out")
    run = fedfactor.run(PooledNMF(3), rows, rounds=8, seed=7)
    name, error = run.worst_client
    assert f"{run.relative_error:.5f} over all rows" in done.stdout
    assert f"{error:.5f} ({name})" in done.stdout
    assert "36 × 6" in done.stdout
    said = " ".join(done.stdout.split())
    assert "Rows and U stayed with their owners. Each owner sent all that the best V depends on, UᵀU and UᵀX" in said
    assert "can reveal rows" in said


@pytest.mark.slow
def test_averaging_says_that_factors_were_sent(files, tmp_path, rows):
    done = fit(files, tmp_path / "out", "-a", "fedavg-nmf", "--set", "local_steps=2")
    assert done.exit_code == 0, done.output
    assert "sent its factor times its weight" in " ".join(done.stdout.split())
    V, _ = read_components(tmp_path / "out")
    np.testing.assert_allclose(V, fedfactor.run(FedAvgNMF(3, local_steps=2), rows, rounds=8, seed=7).V, rtol=1e-10)


@pytest.mark.slow
def test_missing_cells(tmp_path, rows):
    holes = {name: X.copy() for name, X in rows.items()}
    for X in holes.values():
        X[::4, 1] = np.nan
    for name, X in holes.items():
        np.save(tmp_path / f"{name}.npy", X)
    refused = fit(tmp_path, tmp_path / "out")
    assert refused.exit_code == 2
    assert "NaN" in refused.stderr
    done = fit(tmp_path, tmp_path / "out", "--missing-values", "nan")
    assert done.exit_code == 0, done.output
    federation = fedfactor.Federation(holes, missing_values=np.nan)
    V, _ = read_components(tmp_path / "out")
    np.testing.assert_allclose(V, fedfactor.run(PooledNMF(3), federation, rounds=8, seed=7).V, rtol=1e-10)


@pytest.mark.slow
def test_quiet_prints_nothing(files, tmp_path):
    done = fit(files, tmp_path / "out", "--quiet")
    assert (done.exit_code, done.output) == (0, "")


@pytest.mark.slow
def test_without_a_seed_one_is_drawn_and_kept(files, tmp_path):
    out = tmp_path / "out"
    assert call("fit", files, "-k", 2, "--rounds", 3, "-o", out, "-q").exit_code == 0
    seed = json.loads((out / "shared" / "run.json").read_text())["seed"]
    assert call("fit", files, "-k", 2, "--rounds", 3, "-o", tmp_path / "again", "-q", "--seed", seed).exit_code == 0
    np.testing.assert_array_equal(read_components(out)[0], read_components(tmp_path / "again")[0])


class TestAFinishedFolder:
    @pytest.mark.slow
    def test_is_not_overwritten(self, files, tmp_path):
        out = tmp_path / "out"
        fit(files, out)
        before = (out / "shared" / "components.safetensors").read_bytes()
        done = fit(files, out, "--set", "local_steps=1")
        assert done.exit_code == 2
        assert "--overwrite" in done.stderr
        assert (out / "shared" / "components.safetensors").read_bytes() == before

    @pytest.mark.slow
    def test_is_overwritten_on_request_and_keeps_no_old_owner(self, files, tmp_path):
        out = tmp_path / "out"
        fit(files, out)
        done = call("fit", files / "east.npz", files / "west.npz", "-k", 2, "-o", out, "--overwrite", "-q")
        assert done.exit_code == 0, done.output
        assert read_components(out)[0].shape == (2, 6)
        assert sorted(path.name for path in (out / "private").iterdir()) == ["east.safetensors", "west.safetensors"]

    @pytest.mark.slow
    def test_survives_a_mistake_in_the_new_data(self, files, tmp_path):
        out = tmp_path / "out"
        fit(files, out)
        np.savez(files / "odd.npz", X=np.ones((3, 5)))
        assert fit(files, out, "--overwrite").exit_code == 2
        assert read_components(out)[0].shape == (3, 6)


class TestMistakes:
    """One line that says what is wrong, exit code 2, nothing written."""

    def refused(self, out, *words):
        done = call("fit", "-o", out, *words)
        assert done.exit_code == 2, done.output
        assert done.stderr.strip().splitlines()[-1].startswith("Error: "), done.stderr
        assert done.stderr.count("Error: ") == 1, done.stderr
        assert "Traceback" not in done.stderr
        assert not out.exists()
        return done.stderr

    def test_unequal_columns(self, files, tmp_path):
        np.savez(files / "odd.npz", X=np.ones((3, 5)))
        assert "'odd' has 5 columns" in self.refused(tmp_path / "out", files, "-k", 2)

    def test_damaged_file(self, files, tmp_path):
        (files / "west.npz").write_bytes((files / "west.npz").read_bytes()[:90])
        assert "west.npz" in self.refused(tmp_path / "out", files, "-k", 2)

    def test_absent_file(self, files, tmp_path):
        assert "not there" in self.refused(tmp_path / "out", files / "south.npz", "-k", 2)

    def test_unknown_format(self, files, tmp_path):
        (files / "x.docx").write_text("x")
        assert "known format" in self.refused(tmp_path / "out", files / "x.docx", "-k", 2)

    def test_two_files_of_one_owner(self, files, tmp_path):
        np.save(files / "west.npy", np.ones((2, 6)))
        assert "both belong to an owner called 'west'" in self.refused(tmp_path / "out", files, "-k", 2)

    def test_negative_values(self, files, tmp_path):
        np.savez(files / "west.npz", X=-np.ones((3, 6)))
        assert "Negative values" in self.refused(tmp_path / "out", files, "-k", 2)

    def test_rank_too_high(self, files, tmp_path):
        assert "from 1 to 6" in self.refused(tmp_path / "out", files, "-k", 7)

    def test_unknown_setting(self, files, tmp_path):
        assert "server_steps" in self.refused(tmp_path / "out", files, "-k", 2, "--set", "steps=4")

    def test_unknown_algorithm(self, files, tmp_path):
        assert "pooled-nmf" in self.refused(tmp_path / "out", files, "-k", 2, "-a", "nmf")

    @pytest.mark.parametrize("option", ["--participation", "--rounds", "--checkpoint-every", "--workers"])
    def test_impossible_numbers(self, files, tmp_path, option):
        assert "-1" in self.refused(tmp_path / "out", files, "-k", 2, option, -1)

    def test_debug_shows_the_traceback(self, files, tmp_path):
        done = call("fit", files, "-k", 7, "-o", tmp_path / "out", "--debug")
        assert type(done.exception).__name__ == "DataError"


def test_an_owner_whose_results_could_not_be_filed_is_refused_before_any_work(tmp_path):
    np.save(tmp_path / f"{'ä' * 70}.npy", np.eye(5))
    done = call("fit", tmp_path, "-k", 2, "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert "owner's name must have 1 to 200 characters" in done.stderr
    assert "round" not in done.stderr


@pytest.mark.slow
def test_a_device_that_is_not_there_is_refused(files, tmp_path):
    for words in (["fit", "-k", 2, "-o", tmp_path / "out"], ["rank", "-k", "2-3"], ["compare", "-k", 2]):
        said = call(*words, files, "--device", "gpu")
        assert said.exit_code == 2
        assert "device='gpu' is not known" in " ".join(said.output.split())
    said = call("fit", "-k", 2, "-o", tmp_path / "out", files, "--storage", "bfloat16")
    assert "is for rows on a GPU" in " ".join(said.output.split())
