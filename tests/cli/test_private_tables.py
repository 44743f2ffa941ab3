"""Real tables in private runs: columns of different scale and missing cells, and the remedies that work."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.cli import app
from tests.command_line import CliRunner

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")
DP = ("--privacy", "dp", "--epsilon", "4", "--row-bound")


def write(folder, change=lambda X: X):
    """Write three owners' laboratory values; the first column is a count in the ten thousands."""
    rng = np.random.default_rng(0)
    V = rng.gamma(0.6, 1.0, (3, 6))
    for name in ("east", "north", "west"):
        X = rng.gamma(0.5, 1.0, (300, 3)) @ V
        X[:, 0] = 20_000 + 5_000 * X[:, 0]
        lines = (",".join("" if np.isnan(x) else f"{x:.4f}" for x in row) for row in change(X))
        (folder / f"{name}.csv").write_text("platelets,b,c,d,e,f\n" + "\n".join(lines) + "\n")
    return folder


def fit(folder, *words):
    files = [str(folder / f"{name}.csv") for name in ("east", "north", "west")]
    said = CliRunner().invoke(app, ["fit", *files, "-k", "3", "--rounds", "3", "-o", str(folder / "out"), *words])
    return said.exit_code, " ".join(said.output.split())


@pytest.mark.parametrize("mode", [("--privacy", "secure-sum"), (*DP, "40000")])
def test_scaling_by_sums_of_rows_is_refused_with_a_remedy_that_works(tmp_path, mode):
    code, said = fit(write(tmp_path), *mode, "--scale", "rms")
    assert code == 2
    assert "divide each column of the files by a public constant" in said
    assert "'scale declared'" in said


def test_missing_values_under_noise(tmp_path):
    def holes(X):
        X = X / [60_000, 10, 10, 10, 10, 10]
        X[::10, 2] = np.nan
        return X

    code, said = fit(write(tmp_path, holes), *DP, "2", "--missing", "nan")
    assert code == 0, said
    code, said = fit(tmp_path, *DP, "2", "--missing", "nan", "--set", "noisy_step=gradient", "--overwrite")
    assert code == 2
    assert "sums of Newton steps alone" in said


def test_under_noise_no_error_is_shown_that_one_column_decides(tmp_path):
    """0.004 was printed: the level of one column, which says nothing of the others."""
    code, said = fit(write(tmp_path), *DP, "40000")
    assert code == 0, said
    assert "relative error not shown: large columns alone decide it" in said
    assert "--scale rms" not in said  # which private runs refuse
    code, said = fit(write(tmp_path, lambda X: X / [60_000, 10, 10, 10, 10, 10]), *DP, "2", "--overwrite")
    assert code == 0, said
    assert "over all rows (yours to know" in said
