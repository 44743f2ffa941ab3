from __future__ import annotations

import builtins
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

from fedfactor.cli import app
from fedfactor.cli.report import page
from fedfactor.io.result_folder import write_factors
from tests.command_line import CliRunner

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def named(tmp_path):
    rng = np.random.default_rng(5)
    V = rng.gamma(0.5, size=(3, 6))
    folder = tmp_path / "data"
    folder.mkdir()
    for name, n in (("east", 12), ("north", 9), ("west", 15)):
        lines = [",".join(f"{x:.4f}" for x in row) for row in rng.random((n, 3)) @ V]
        text = "\n".join(f"{name}{i},{line}" for i, line in enumerate(lines))
        (folder / f"{name}.csv").write_text(f"patient_id,crp,ldl,hba1c,sodium,<b>odd</b>,creatinine\n{text}\n")
    return folder


@pytest.fixture
def out(named, tmp_path):
    done = call("fit", named, "-k", 3, "--seed", 1, "--rounds", 20, "-o", tmp_path / "out", "-q")
    assert done.exit_code == 0, done.output
    return tmp_path / "out"


class Links(HTMLParser):
    """Collects where a page points to, and whether its elements are closed in order."""

    def __init__(self):
        super().__init__()
        self.links, self.ids, self.open = [], [], []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src", "xlink:href", "action"):
                self.links.append(value)
            if name == "id":
                self.ids.append(value)
        if tag not in ("meta", "link", "br", "img", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.slow
def test_fit_writes_a_page_beside_its_result(out):
    text = (out / "report.html").read_text()
    assert "hba1c" in text
    assert "worst owner" in text
    assert "alone, on rows held out" in text
    assert "of 3 owners gain" in text
    assert f"fedfactor.load(&#x27;{out}&#x27;)" in text
    assert (out / "report.html").stat().st_mode & 0o777 == 0o600  # it tells what owners have


@pytest.mark.slow
def test_no_page_when_none_is_wanted(named, tmp_path):
    assert call("fit", named, "-k", 2, "--rounds", 3, "-o", tmp_path / "o", "-q", "--no-report").exit_code == 0
    assert not (tmp_path / "o" / "report.html").exists()
    assert call("fit", named, "-k", 2, "--rounds", 3, "-o", tmp_path / "p", "-q", "--no-gain").exit_code == 0
    assert "measured by <code>fedfactor compare" in (tmp_path / "p" / "report.html").read_text()


@pytest.mark.slow
def test_the_page_points_nowhere_else_and_is_well_formed(out):
    links = Links()
    links.feed((out / "report.html").read_text())
    assert links.open == []
    assert all(link.startswith(("#", "data:")) for link in links.links)
    assert {link[1:] for link in links.links if link.startswith("#") and len(link) > 1} <= set(links.ids)
    assert len(set(links.ids)) == len(links.ids), "two figures of the page use one name"


@pytest.mark.slow
def test_names_from_data_are_text_and_not_markup(out):
    text = (out / "report.html").read_text()
    assert "<b>odd</b>" not in text
    assert "&lt;b&gt;odd&lt;/b&gt;" in text


@pytest.mark.slow
def test_a_private_run_shows_no_owner_s_figures(named, tmp_path):
    words = ("--privacy", "secure-sum", "--allow", "small-client", "--allow", "rare-columns", "-q", "--rounds", 3)
    done = call("fit", named, "-k", 2, "-o", tmp_path / "o", *words)
    assert done.exit_code == 0, done.output
    text = (tmp_path / "o" / "report.html").read_text()
    assert "no owner’s own error is published" in text
    assert "Secure aggregation: the server saw only what" in text
    assert "worst owner" not in text
    assert "Share of each owner" not in text


@pytest.mark.slow
def test_without_matplotlib_the_tables_stay(out, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **named):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    text = page(out)
    assert "pip install matplotlib" in text
    assert "hba1c" in text
    assert "<svg" not in text


@pytest.mark.slow
def test_warnings_of_fit_are_on_the_page(named, tmp_path):
    lines = (named / "east.csv").read_text().splitlines()
    (named / "west.csv").write_text("\n".join(lines[:3]) + "\n")
    text = (named / "north.csv").read_text().splitlines()
    text[3] = ",".join([text[3].split(",")[0], "999999", *text[3].split(",")[2:]])
    (named / "north.csv").write_text("\n".join([*text, *lines[4:]]) + "\n")
    done = call("fit", named, "-k", 3, "--rounds", 3, "-o", tmp_path / "o", "-q")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "o" / "report.html").read_text()
    assert '<section id="warnings">' in page
    assert "no more rows than components" in page
    assert "Cells far from all others: &#x27;crp&#x27; at &#x27;north&#x27;" in page
    assert "go on all the same" not in page


def test_report_of_something_else(tmp_path):
    done = call("report", tmp_path)
    assert done.exit_code == 2
    assert "components.safetensors" in done.stderr


def large(folder, k=200, m=20_000):
    """A result of many components, features and owners."""
    rng = np.random.default_rng(0)
    private = {f"owner{i:02d}": rng.random((3, k), np.float32) for i in range(30)}
    record = {
        "algorithm": "PooledNMF", "settings": {"n_components": k}, "seed": 0, "rounds": 2, "relative_error": 0.3,
        "status": "rounds", "bytes_up": 1, "bytes_down": 1, "seconds": 1.0,
        "owners": {name: {"rows": 3, "relative_error": 0.3} for name in private},
        "history": [{"index": i, "participants": [], "bytes_up": 1, "bytes_down": 1, "seconds": 0.1,
                     "metrics": {"relative_error": 0.4 - i / 10}, "rejected": []} for i in range(2)],
    }  # fmt: skip
    names = [f"gene_with_a_long_name_{j}" for j in range(m)]
    return write_factors(folder, rng.random((k, m), np.float32), features=names, private=private, run=record)


@pytest.mark.slow
def test_two_hundred_components_of_twenty_thousand_features_stay_small(tmp_path):
    text = page(large(tmp_path))
    assert len(text.encode()) < 5_000_000
    assert text.count('<th scope="row">') >= 200 + 30


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, to open the page as a reader would")
@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_opens_it_without_complaint(out, tmp_path, width):
    # A request that the page's own policy forbids is a message on the console, too.
    done = subprocess.run(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr",
            "--disable-background-networking", f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900",
            "--dump-dom", (out / "report.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "How to use it" in done.stdout
    assert not re.findall(r".*CONSOLE.*", done.stderr)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, to open the page as a reader would")
def test_on_a_phone_no_figure_of_an_owner_is_out_of_sight(out, tmp_path):
    boxes = "[...document.querySelectorAll('#good .scroll')].map(b => b.scrollWidth - b.clientWidth)"
    # Scripts are forbidden on the page itself: a copy without that rule carries the one that looks.
    text = re.sub(r"<meta http-equiv[^>]*>", "", (out / "report.html").read_text())
    assert "together</th>" in text  # the widest table: with what owners gain
    (tmp_path / "copy.html").write_text(text.replace("</body>", f"<script>document.title = {boxes}</script></body>"))
    done = subprocess.run(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=390,900",
            "--dump-dom", (tmp_path / "copy.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    overflows = re.search(r"<title>(.*)</title>", done.stdout)[1].split(",")
    assert set(overflows) == {"0"}


@pytest.mark.slow
def test_a_page_of_ratings_says_how_to_ask_for_recommendations(tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"{u},{i},{1 + (u * i) % 5},0" for u in range(1, 25) for i in rng.choice(20, 9, replace=False) + 100]
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "\n".join(lines) + "\n")
    done = call("fit", tmp_path / "ratings.csv", "-a", "pooled-cf", "-k", 2, "--seed", 0, "-o", tmp_path / "o", "-q")
    assert done.exit_code == 0, done.output
    assert "fedfactor recommend" in (tmp_path / "o" / "report.html").read_text()
    asked = call("recommend", tmp_path / "o", "--user", 7, "-n", 3)
    assert asked.exit_code == 0, asked.output
    rows = [line.split(",") for line in asked.stdout.splitlines()]
    assert rows[0] == ["user", "item", "score"]
    seen = {line.split(",")[1] for line in lines if line.startswith("7,")}
    assert [row[0] for row in rows[1:]] == ["7"] * 3
    assert not {row[1] for row in rows[1:]} & seen
    told = call("predict", tmp_path / "o", "--user", 7, "--item", rows[1][1])
    assert 1 <= float(told.stdout.splitlines()[1].split(",")[2]) <= 5
    call("predict", tmp_path / "o", "--pairs", tmp_path / "ratings.csv", "-o", tmp_path / "p.csv")
    assert len((tmp_path / "p.csv").read_text().splitlines()) == len(lines) + 1
    for words in (("recommend", "--user", "nobody"), ("recommend", "--user", "999"), ("predict", "--user", 7)):
        wrong = call(words[0], tmp_path / "o", *words[1:])
        assert wrong.exit_code == 2, wrong.output
        assert wrong.stderr.startswith("Error: ")


class TestExport:
    @pytest.mark.slow
    def test_components_with_their_names(self, out, tmp_path):
        assert call("export", out, "-o", tmp_path / "v.csv").exit_code == 0
        lines = (tmp_path / "v.csv").read_text().splitlines()
        assert lines[0] == "feature,component_0,component_1,component_2"
        assert [line.partition(",")[0] for line in lines[1:4]] == ["crp", "ldl", "hba1c"]

    @pytest.mark.slow
    def test_rows_with_their_ids(self, out, tmp_path):
        assert call("export", out, "--rows", "-o", tmp_path / "u.csv").exit_code == 0
        assert (tmp_path / "u.csv").read_text().splitlines()[1].startswith("east/east0,")
        assert call("export", out, "--owner", "north", "-o", tmp_path / "n.parquet").exit_code == 0
        import pyarrow.parquet

        found = pyarrow.parquet.read_table(tmp_path / "n.parquet").to_pylist()
        assert len(found) == 9
        assert "north0" in found[0].values()

    @pytest.mark.slow
    @pytest.mark.parametrize("words", [("--owner", "nobody", "-o", "u.csv"), ("-o", "u.docx")])
    def test_what_cannot_be_exported(self, out, words):
        done = call("export", out, *words)
        assert done.exit_code == 2
        assert done.stderr.startswith("Error: ")


@pytest.mark.slow
def test_info_tells_settings_and_privacy(out, named, tmp_path):
    said = " ".join(call("info", out).stdout.split())
    assert "n_components=3" in said
    assert "privacy: none, ε = ∞" in said
    record = json.loads((out / "shared" / "run.json").read_text())
    record["privacy"] = {"mode": "dp", "epsilon": 2.5, "delta": 1e-5, "unit": "row"}
    (out / "shared" / "run.json").write_text(json.dumps(record))
    assert "ε = 2.5, δ = 1e-05, unit row" in call("info", out).stdout


def test_fit_without_a_rank_says_what_to_do(named, tmp_path):
    done = call("fit", named, "-o", tmp_path / "o")
    assert done.exit_code == 2
    assert "-k" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("mode", [("dp", "--epsilon", 4, "--row-bound", 20), ("secure-sum",)])
def test_nothing_shared_of_a_private_run_states_the_number_of_rows(tmp_path, mode):
    """The page fell back to the length of U: ε = ∞ for whoever saw it."""
    pytest.importorskip("cryptography")
    pytest.importorskip("dp_accounting")
    rng, counts = np.random.default_rng(0), {"east": 1013, "north": 1451, "west": 1777}
    for name, n in counts.items():
        X = rng.gamma(0.5, 1.0, (n, 3)) @ rng.gamma(0.6, 1.0, (3, 6))
        np.savetxt(tmp_path / f"{name}.csv", X, delimiter=",", header=",".join("abcdef"), comments="")
    files = [tmp_path / f"{name}.csv" for name in counts]
    done = call("fit", *files, "-k", 3, "--rounds", 3, "-o", tmp_path / "out", "--privacy", *mode)
    assert done.exit_code == 0, done.output
    shared = [f for f in (tmp_path / "out").rglob("*") if f.is_file() and "private" not in f.parts]
    assert {"report.html", "run.json"} <= {file.name for file in shared}
    numbers = [str(n) for n in counts.values()]
    if mode[0] == "dp":  # exact sums are counted against the number of all rows, which run.json says
        numbers.append(str(sum(counts.values())))
    for file in shared:
        text = file.read_bytes().decode("latin-1").replace(",", "")
        found = [n for n in numbers if re.search(rf"(?<![\d.]){n}(?![\d.])", text)]
        assert not found, (file.name, found)
