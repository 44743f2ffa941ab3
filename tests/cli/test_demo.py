"""The demo, once in earnest: what it prints, what it writes, and whether its page holds in a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

pytestmark = pytest.mark.integration

VOID = {"meta", "link", "img", "br"}
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # the browser's own calls home find nobody
]


@pytest.fixture(scope="module")
def demo(tmp_path_factory, shell):
    out = tmp_path_factory.mktemp("demo") / "out"
    done = shell("demo", "-o", out)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def ways(out):
    return {way["label"]: way for way in json.loads((out / "run.json").read_text())["ways"]}


def test_it_writes_what_it_says(demo):
    out, said = demo
    names = {"index.html", "run.json", "components.png", "errors.png"}
    assert {path.name for path in out.iterdir()} == names
    assert all(name in said for name in names)
    assert all((out / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for name in ("components.png", "errors.png"))


def test_pooled_sums_reach_pooled_rows_and_averages_do_not(demo):
    found = ways(demo[0])
    target = found["scikit-learn, all rows in one place"]["relative_error"]
    assert found["PooledNMF"]["relative_error"] < 1.01 * target
    averaged = [way["relative_error"] for label, way in found.items() if label.startswith("FedAvgNMF")]
    assert len(averaged) == 2
    assert min(averaged) > 1.1 * target


def test_the_table_shows_the_figures_of_the_record(demo):
    out, said = demo
    for label, way in ways(out).items():
        line = next(line for line in said.splitlines() if label in line)
        assert f"{way['relative_error']:.4f}" in line
        assert f"{way['worst_owner']['relative_error']:.4f}" in line
        assert way["rounds"] is None or f" {way['rounds']} " in line


class Reader(HTMLParser):
    """Notes tags that are not closed in order, pictures, and everything that would be fetched."""

    def __init__(self):
        super().__init__()
        self.open, self.wrong, self.pictures, self.fetched = [], [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "img":
            self.pictures.append(attrs)
        self.fetched += [attrs[key] for key in ("src", "href", "srcset", "data", "action") if key in attrs]

    def handle_startendtag(self, tag, attrs):
        pass  # closes itself: parts of a chart

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def test_the_page_is_whole_and_needs_nothing_else(demo):
    text = (demo[0] / "index.html").read_text()
    reader = Reader()
    reader.feed(text)
    assert (reader.open, reader.wrong) == ([], [])
    assert len(reader.pictures) == 3
    assert all(picture["alt"] and picture["src"].startswith("data:image/png;base64,") for picture in reader.pictures)
    assert all(address.startswith("data:") for address in reader.fetched)
    assert not re.search(r"url\(|@import|<script|\$[a-z{]", text)
    for label in ways(demo[0]):
        assert label.replace("'", "&#x27;") in text


def test_it_does_not_write_over_something_else(shell, tmp_path):
    (tmp_path / "index.html").write_text("mine")
    done = shell("demo", "-o", tmp_path)
    assert done.returncode == 2
    assert "was not written by this demo" in done.stderr
    assert (tmp_path / "index.html").read_text() == "mine"


def test_without_matplotlib_the_page_is_there_all_the_same(shell, tmp_path):
    hidden = tmp_path / "hidden" / "matplotlib"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('not installed')")
    done = shell("demo", "-o", tmp_path / "out", "--rounds", 3, first=hidden.parent)
    assert done.returncode == 0, done.stderr
    assert "pip install matplotlib" in done.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"index.html", "run.json"}
    assert (tmp_path / "out" / "index.html").read_text().count("<img") == 3


def chromium(profile, *words):
    binary = shutil.which("chromium") or shutil.which("chromium-browser")
    if binary is None:
        pytest.skip("chromium is not installed, so the page was not opened in a browser (apt-get install chromium)")
    command = [binary, *FLAGS, f"--user-data-dir={profile}", "--enable-logging=stderr", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done


PROBE = """<script>addEventListener("load", () => {
  const pictures = [...document.images].map(p => [p.complete, p.naturalWidth, p.getBoundingClientRect().width]);
  const charts = [...document.querySelectorAll(".chart svg")].map(c => c.getBoundingClientRect().height);
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const loaded = performance.getEntriesByType("resource").map(r => r.name).filter(n => !n.startsWith("data:"));
  const said = document.createElement("pre");
  said.id = "probe";
  said.textContent = JSON.stringify({pictures, charts, wide, loaded});
  document.body.append(said);
});</script></body>"""


def requests(log):
    """Addresses that a page asked for; what the browser asks for itself has no origin."""
    asked = (event.get("params", {}) for event in json.loads(log.read_text())["events"])
    return {
        about["url"]
        for about in asked
        if str(about.get("url", "")).startswith("http") and about.get("initiator", "not an origin") != "not an origin"
    }


def test_the_page_in_a_browser(demo, tmp_path):
    words = (f"--log-net-log={tmp_path / 'net.json'}", "--window-size=1100,3700")
    page = (demo[0] / "index.html").as_uri()
    done = chromium(tmp_path / "profile", *words, f"--screenshot={tmp_path / 'light.png'}", page)
    assert "CONSOLE" not in done.stderr, done.stderr
    assert requests(tmp_path / "net.json") == set()
    from matplotlib.image import imread

    shot = imread(tmp_path / "light.png")[..., :3]
    assert shot.shape[:2] == (3700, 1100)
    assert shot[:200].mean() > 0.9  # light paper
    assert (abs(shot - shot[0, 0]).max(axis=-1) > 0.2).mean() > 0.01  # with something on it


def test_the_browser_would_notice_a_request_and_a_console_error(tmp_path):
    bad = '<!DOCTYPE html><title>x</title><img src="http://127.0.0.1:9/x.png" alt=""><script>nothing.here</script>'
    (tmp_path / "bad.html").write_text(bad)
    words = (f"--log-net-log={tmp_path / 'net.json'}", f"--screenshot={tmp_path / 'bad.png'}")
    done = chromium(tmp_path / "profile", *words, (tmp_path / "bad.html").as_uri())
    assert requests(tmp_path / "net.json") == {"http://127.0.0.1:9/x.png"}
    assert "CONSOLE" in done.stderr


@pytest.mark.parametrize("width", [400, 1100])
def test_pictures_and_charts_are_visible_at_any_width(demo, tmp_path, width):
    text = (demo[0] / "index.html").read_text()
    # Scripts are forbidden on the page itself: a copy without that rule carries the one that looks around.
    text = re.sub(r"<meta http-equiv[^>]*>", "", text).replace("</body>", PROBE)
    (tmp_path / "copy.html").write_text(text)
    done = chromium(tmp_path / "profile", "--dump-dom", f"--window-size={width},900", (tmp_path / "copy.html").as_uri())
    seen = json.loads(re.search(r'<pre id="probe">(.*?)</pre>', done.stdout).group(1))
    assert len(seen["pictures"]) == 3
    assert all(complete and natural > 0 and shown > 100 for complete, natural, shown in seen["pictures"])
    assert len(seen["charts"]) == 2
    assert min(seen["charts"]) > 150
    assert seen["wide"] <= 0  # what is too wide scrolls in its own box
    assert seen["loaded"] == []
