"""Names that are markup, formulas or paths: of columns, owners, rows, users, parties and the federation itself."""

from __future__ import annotations

import csv
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

import fedfactor
from claims import _flower as real
from fedfactor.cli import app
from fedfactor.cli.live_page import party_pages, server_pages
from fedfactor.cli.report import write_report
from fedfactor.core.errors import DataError
from fedfactor.federation.party import Member
from fedfactor.federation.results import write_result
from fedfactor.federation.trial import Trial
from fedfactor.io.result_folder import owner_from_file, read_components, write_factors
from fedfactor.network.client import RemoteClient
from fedfactor.network.message_format import Head
from fedfactor.network.server import Server
from tests.command_line import CliRunner
from tests.network.in_process import InProcessTransport

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DEED = "document.documentElement.setAttribute('data-owned','yes')"
MARKUP = (
    f"<script>{DEED}</script>", f'"><img src=x onerror="{DEED}">', f"'><svg onload={DEED}>", f"</style><script>{DEED}",
    f"</title><script>{DEED}</script>", f"--><script>{DEED}</script>", f"]]><script>{DEED}</script>",
    f"</text></svg><script>{DEED}</script>", f"<iframe srcdoc='<script>parent.{DEED}</script>'>",
    f"javascript:{DEED}", "{{7*7}}${7*7}$x", "&lt;script&gt;", f"<math><mtext><script>{DEED}</script>",
)  # fmt: skip
FORMULAS = ('=HYPERLINK("http://x","y")', "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1+1", "\r=1", "\n=1")
PATHS = ("../../escaped", "..", "/tmp/escaped", "a/../../escaped", "..\\escaped", "con\x00", ".", "~root", "%2e%2e%2f")


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def owned(tmp_path, page):
    """Open a page in a browser; tell whether anything that it was given ran."""
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "<html" in done.stdout
    return "data-owned" in done.stdout.split(">", 2)[0] + done.stdout.split("<head", 1)[0]


def formulas_in(path):
    with path.open(newline="", encoding="utf-8") as file:
        cells = [cell for line in csv.reader(file) for cell in line]
    return [cell for cell in cells if cell[:1] in tuple("=+@\t\r\n") or (cell[:1] == "-" and not cell[1:2].isdigit())]


def tables(folder, names):
    """Rows of three parties with these columns."""
    rng, files = np.random.default_rng(0), {}
    for size, party in enumerate(("north", "south", "west")):
        X = rng.gamma(0.5, 1.0, (40 + 5 * size, 3)) @ rng.gamma(0.6, 1.0, (3, len(names)))
        files[party] = folder / f"{party}.npz"
        np.savez(files[party], X=X, features=list(names))
    return files


@pytest.mark.integration
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed, so no page was opened")
def test_no_name_runs_in_a_browser(tmp_path):
    control = tmp_path / "control.html"
    control.write_text(f"<!doctype html><html><head></head><body><p>{MARKUP[1]}</p></body></html>")
    assert owned(tmp_path, control)  # this is how it would look
    pages = []
    names = MARKUP[:12]
    X = np.random.default_rng(0).gamma(0.5, 1.0, (60, 3)) @ np.random.default_rng(1).gamma(0.6, 1.0, (3, 12))
    run = {"algorithm": "PooledNMF", "settings": {}, "seed": 0, "rounds": 1, "status": MARKUP[3],
           "bytes_up": 1, "bytes_down": 1, "relative_error": 0.5, "seconds": 1.0,
           "preprocess": {"steps": [MARKUP[4]], "weights": None}, "asked": {"note": MARKUP[5]},
           "privacy": {"mode": MARKUP[6], "epsilon": "inf", "sees": {"server": MARKUP[7]}},
           "owners": {MARKUP[8]: {"rows": 60, "relative_error": 0.4}}}  # fmt: skip
    out = write_factors(
        tmp_path / "fit", np.abs(X[:3]), features=names, private={MARKUP[8]: np.abs(X[:, :3])}, run=run,
        row_ids={MARKUP[8]: [MARKUP[0]] * 60},
    )  # fmt: skip
    pages.append(write_report(out))
    strange = {**run, "settings": {MARKUP[1]: MARKUP[2]}}
    other = write_factors(tmp_path / "other", np.abs(X[:3]), features=names, run=strange)
    with pytest.raises(DataError, match="has no setting"):  # and no page is written
        write_report(other)
    changes = real.terms("PooledNMF", 2)
    about = {"name": MARKUP[0], "purpose": MARKUP[1], "contact": MARKUP[9]}
    trial = Trial(tmp_path / "all", tables(tmp_path, names), {**changes, "federation": about})
    stores = {
        name: Member(trial.toml, trial.root / f"{name}.key", trial.folder(name)).sign_up(file)
        for name, file in trial.files.items()
    }
    place = trial.coordinator
    place.prepare()
    post = InProcessTransport({name: RemoteClient(store) for name, store in stores.items()})
    Server(place.folder, trial.terms.agreement(), trial.terms.policy(), post).run()
    stores["north"].log(Head("refusal", "r", 9, "north", "f" * 64), b"", MARKUP[1])
    for where, name in ((trial.folder("north"), "party"), (place.folder, "server")):
        write_result(where, tmp_path / name)
        pages.append(write_report(tmp_path / name))
    for made, name in ((party_pages(trial.folder("north")), "live party"), (server_pages(place), "live server")):
        pages.append(tmp_path / f"{name}.html")
        pages[-1].write_text(made[""][1](), encoding="utf-8")
    assert call("federation", "dossier", trial.toml, "-o", tmp_path / "dossier.html").exit_code == 0
    pages.append(tmp_path / "dossier.html")
    report = fedfactor.audit.audit(
        fedfactor.algorithms.PooledNMF(2), {name: X[:20] for name in MARKUP[:3]}, rounds=1, canaries=2
    )
    (tmp_path / "audit.html").write_text(report.to_html(), encoding="utf-8")
    pages.append(tmp_path / "audit.html")
    assert [page.name for page in pages if owned(tmp_path, page)] == []


@pytest.mark.parametrize("name", PATHS)
def test_no_name_of_an_owner_leads_out_of_the_folder(tmp_path, name):
    out = write_factors(tmp_path / "a" / "b" / "out", np.eye(2), private={name: np.ones((3, 2))}, row_ids={name: "abc"})
    assert sorted(path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*") if path.is_file()) == ["a"] * 4
    (kept,) = (out / "private").glob("*.safetensors")
    assert owner_from_file(kept) == name


@pytest.mark.parametrize("name", [name for name in PATHS if name != "%2e%2e%2f"])
def test_no_party_can_have_a_name_that_leads_elsewhere(tmp_path, name):
    if name == "con\x00":
        pytest.skip("TOML has no such character")
    with pytest.raises(fedfactor.FedfactorError, match="cannot be a party's name"):
        Trial(tmp_path / "all", {name: real.write_rows(tmp_path)["north"]}, real.terms("PooledNMF", 2))


@pytest.mark.slow
def test_lists_for_spreadsheets_hold_no_formulas(tmp_path):
    rng = np.random.default_rng(0)
    rated = [(user, item) for user in FORMULAS for item in (*FORMULAS, *"abcdef") if rng.random() < 0.6]
    frame = pd.DataFrame(rated, columns=["user", "item"]).assign(rating=rng.integers(1, 6, len(rated)))
    whole = ~(frame["user"] + frame["item"]).str.contains("[\r\n]")  # with a line end in a name, it is no CSV file
    frame[whole].to_csv(tmp_path / "a.csv", index=False)
    model = fedfactor.PooledCF(2, random_state=0).fit({"=owner": frame})
    assert model.recommend_to(tmp_path / "lists.csv", n=3)
    done = call("fit", "-a", "pooled-cf", "-k", 2, "--rounds", 3, tmp_path / "a.csv", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert call("recommend", tmp_path / "out", "-o", tmp_path / "told.csv").exit_code == 0
    for file in ("lists.csv", "told.csv"):
        assert not formulas_in(tmp_path / file)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["columns", "ids"])
def test_tables_for_spreadsheets_hold_no_formulas(tmp_path, what):
    X = np.abs(np.random.default_rng(0).normal(size=(7, 7)))
    names = {"columns": list(FORMULAS), "ids": [f"c{j}" for j in range(7)]}[what]
    out = write_factors(
        tmp_path / "out", X[:2], features=names, private={"=owner": X[:, :2]},
        run={"algorithm": "PooledNMF", "settings": {"n_components": 2}, "seed": 0, "rounds": 1, "status": "rounds",
             "bytes_up": 1, "bytes_down": 1, "relative_error": 0.5}, row_ids={"=owner": FORMULAS},
    )  # fmt: skip
    assert read_components(out)[1] == tuple(names)
    for more in ((), ("--rows",)):
        assert call("export", out, "-o", tmp_path / "u.csv", *more).exit_code == 0
        assert not formulas_in(tmp_path / "u.csv")
