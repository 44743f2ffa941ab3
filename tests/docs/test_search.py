"""A term of the field, typed into the search of the site, leads to the right page among the first three results."""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.docs.browser import Browser, executable

ROOT = Path(__file__).resolve().parents[2]
FIRST = 3
"""How many results a reader looks at."""
TERMS = {
    "secure aggregation": "explanation/threat_model explanation/architecture",
    "initialization": "explanation/pooled_nmf_in_depth",
    "hold-out": "howto/number_of_components",
    "missing values": "howto/missing_values",
    "hyperparameter": "reference/parameters",
    "GPU": "howto/gpu",
    "dropout": "howto/operations howto/troubleshooting",
    "threat model": "explanation/threat_model",
    "warm start": "howto/incremental_fitting",
    "differential privacy": "howto/choose_epsilon explanation/threat_model",
    "privacy budget": "howto/choose_epsilon",
    "checkpoint": "howto/long_fits",
    "resume": "howto/long_fits",
    "MPI": "howto/mpi",
    "SLURM": "howto/slurm",
    "Dask": "howto/dask",
    "Flower": "howto/flower",
    "proxy": "howto/networks",
    "firewall": "howto/networks",
    "Docker": "howto/services",
    "Prometheus": "howto/services",
    "certificate": "tutorials/federation_of_three_hospitals howto/operations howto/networks",
    "exit code": "reference/errors",
    "error message": "howto/troubleshooting reference/errors",
    "Boolean matrix factorization": "howto/binary_data",
    "implicit feedback": "howto/ratings",
    "recommender": "howto/ratings",
    "topic model": "howto/topics",
    "single cell": "howto/single_cells",
    "batch effect": "howto/single_cells",
    "PCA": "howto/principal_components",
    "number of components": "howto/number_of_components",
    "cross-validation": "howto/number_of_components",
    "feature scaling": "howto/feature_scaling",
    "normalization": "howto/feature_scaling",
    "vertical federated learning": "howto/columns_of_several_clients",
    "poisoning": "explanation/threat_model",
    "membership inference": "explanation/threat_model",
    "NVFlare": "explanation/alternatives",
    "install": "tutorials/first_fit",
}
"""Term → the pages that answer it; one of them must be among the first results."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.skipif(executable() is None, reason="needs Chromium"),
]


class Silent(http.server.SimpleHTTPRequestHandler):
    """Serve files without a log."""

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[str]:
    """Build the pages without running the gallery, and serve them on loopback."""
    source = tmp_path_factory.mktemp("docs") / "docs"
    shutil.copytree(ROOT / "docs", source, ignore=shutil.ignore_patterns("_build", "gallery", "generated"))
    for name in ("examples", "src", "deploy"):
        (source.parent / name).symlink_to(ROOT / name)
    folder = source.parent / "html"
    words = [sys.executable, "-m", "sphinx", "-q", "-D", "plot_gallery=0", "-b", "html", str(source), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    serve = functools.partial(Silent, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


def results(browser: Browser, site: str, term: str) -> list[str]:
    """Return the pages that the site's search lists for a term, best first, without their anchors."""
    browser.open(f"{site}/search.html?q={quote(term)}")
    # The script replaces this text when it has looked at the whole index.
    browser.wait("/found|did not match/.test(document.querySelector('#search-results .search-summary')?.innerText)")
    links = browser.evaluate("[...document.querySelectorAll('#search-results ul.search > li > a')].map(a => a.href)")
    pages = [link.removeprefix(f"{site}/").partition("?")[0].partition("#")[0] for link in links]
    return list(dict.fromkeys(page.removesuffix(".html") for page in pages))


def test_there_are_forty_terms():
    assert len(TERMS) == 40


@pytest.mark.parametrize("term", TERMS)
def test_a_term_leads_to_its_page(browser, site, term):
    found = results(browser, site, term)
    assert set(found[:FIRST]) & set(TERMS[term].split()), found[:8]


def test_a_word_that_is_nowhere_finds_nothing(browser, site):
    assert results(browser, site, "zyzzyvaquux") == []
