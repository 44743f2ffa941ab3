"""What the pages tell people to type: every command and flag exists, and those of the how-tos run as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from fedfactor.cli import app
from tests.command_line import CliRunner, command

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LABS = ["alt", "crea", "crp", "hb", "k", "na", "age", "bmi", "hr", "spo2", "ldl", "hba1c", "gluc", "tsh"]
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if not {"_build", "generated", "gallery"} & {*path.parts})


def commands(page: Path) -> list[list[str]]:
    """List what a page types to fedfactor, word by word, in order."""
    found: list[list[str]] = []
    for block in BLOCK.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&", re.sub(r"\s#.*", "", line)):
                typed = re.search(r"(?:^|\s|\$ )fedfactor (.*)", part.strip())
                if typed and "python -m" not in part and "activate" not in part:
                    found.append(shlex.split(typed[1]))
    return found


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_commands_and_flags_exist(page):
    for words in commands(page):
        group, rest = command(app), list(words)
        while hasattr(group, "commands"):
            name = rest.pop(0)
            if name.startswith("-"):  # fedfactor --version
                break
            assert name in group.commands, f"{page.name}: fedfactor {shlex.join(words)}"
            group = group.commands[name]
        known = {flag for parameter in group.params for flag in (*parameter.opts, *parameter.secondary_opts)}
        for flag in re.findall(r"(?<![\w-])--?[a-z][\w-]*", " ".join(word for word in rest if word.startswith("-"))):
            assert flag in known, f"{page.name}: {shlex.join(words)} has no {flag}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make the files that the how-tos speak of, small, and go there."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    V = rng.gamma(0.5, 1.0, (3, len(LABS)))
    for name in ("north", "south", "west", "new"):
        rows = rng.gamma(0.7, 1.0, (40, 3)) @ V
        lines = [f"{name[0]}{i:03d}," + ",".join(f"{cell:.4f}" for cell in row) for i, row in enumerate(rows)]
        Path(f"{name}.csv").write_text("\n".join([",".join(["patient_id", *LABS]), *lines]) + "\n")
    for name in ("ratings", "shop_a", "shop_b"):
        shift = 100 * (name == "shop_b")
        cells = [(user + shift, item) for user in range(36, 66) for item in rng.choice(30, 12, replace=False)]
        lines = [f"{user},{300 + item},{rng.integers(1, 6)},{i}" for i, (user, item) in enumerate(cells)]
        Path(f"{name}.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *lines]) + "\n")
    Path("test.csv").write_text("userId,movieId\n42,318\n43,301\n")
    for name in ("courier", "ledger"):
        sparse.save_npz(f"{name}.npz", sparse.csr_array(rng.poisson(rng.gamma(0.3, 1, (60, 6)) @ rng.random((6, 50)))))
    for name in ("ward_a", "ward_b"):
        X = (rng.random((50, 4)) < 0.4).astype(int) @ (rng.random((4, 14)) < 0.3) > 0
        lines = [",".join("yes" if cell else "no" for cell in row) for row in X]
        Path(f"{name}.csv").write_text("\n".join([",".join(LABS), *lines]) + "\n")
    return tmp_path


def cells_of(folder: Path) -> None:
    """Write counts of two laboratories' cells."""
    anndata = pytest.importorskip("anndata")
    rng = np.random.default_rng(1)
    for name in ("basel", "lund"):
        counts = rng.poisson(rng.gamma(0.4, 1, (60, 14)) @ rng.random((14, 30))).astype(np.float32)
        with pd.option_context("future.infer_string", False):  # anndata 0.12 cannot write the strings of pandas 3
            found = anndata.AnnData(counts, layers={"counts": counts})
            found.var_names = [f"gene{j}" for j in range(30)]
            found.obs_names = [f"{name}{i}" for i in range(60)]
            found.write_h5ad(folder / f"{name}.h5ad")


def types(words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, f"fedfactor {shlex.join(words)}: {done.output}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/tutorials/first_fit.md",
        "docs/tutorials/hospital_csvs.md",
        "docs/howto/ratings.md",
        "docs/howto/topics.md",
        "docs/howto/binary_data.md",
        "docs/howto/number_of_components.md",
        "docs/howto/incremental_fitting.md",
        "docs/howto/single_cells.md",
    ],
)
def test_commands_run_as_they_stand(folder, page):
    if "single_cells" in page:
        cells_of(folder)
    if "hospital" in page:  # there cells are missing
        for name in ("north", "south", "west"):
            text = Path(f"{name}.csv").read_text()
            Path(f"{name}.csv").write_text(re.sub(r"(\d{3},[\d.]+,)[\d.]+,", r"\1,", text, count=5))
    # Commands of a federation need one; tests/federation runs them.
    typed = [words for words in commands(ROOT / page) if words[0] != "federation"]
    assert typed
    for words in typed:
        types(words)


@pytest.mark.slow
def test_commands_about_a_result_run_on_one(folder):
    """The page speaks of two results: of a table, and of ratings."""
    types(["fit", "north.csv", "south.csv", "-k", "3", "-o", "out", "--no-gain"])
    table, ratings = [], []
    for words in commands(ROOT / "docs/howto/read_a_result.md"):
        (ratings if words[0] in ("recommend", "predict") else table).append(words)
    assert len(table) >= 3
    for words in table:
        if not words[-1].endswith(".h5ad") or pytest.importorskip("anndata"):
            types(words)
    types(["fit", "-a", "pooled-cf", "ratings.csv", "-o", "out", "--overwrite"])
    for words in ratings:
        types(words)
