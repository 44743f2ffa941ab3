"""The page of a federation that runs: what it says, to whom, and that a browser opens it without complaint."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from html import escape, unescape
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from claims import _flower as real
from fedfactor.cli.live_page import party_pages, serve_pages, server_pages, told
from fedfactor.federation import terms_writer
from fedfactor.federation.coordinator import PRESENCE, SERVING, Coordinator
from fedfactor.federation.logs import JSON, Event, LogFile, both
from fedfactor.federation.party import Member
from fedfactor.federation.progress_lines import PartyWatch, ServerWatch
from fedfactor.federation.results import server_status
from fedfactor.federation.trial import Trial
from fedfactor.network.client import RemoteClient
from fedfactor.network.client_storage import ClientFolder
from fedfactor.network.connection_status import CONNECTION
from fedfactor.network.server import Server
from tests.network.in_process import InProcessTransport

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def ran(tmp_path):
    """A federation after a run, with a name that is no markup, and its coordinator's folder as if it were served."""
    trial = Trial(tmp_path / "all", real.write_rows(tmp_path), real.terms("PooledNMF", 3))
    content = {**trial.terms.content, "federation": {**trial.terms.content["federation"], "name": "<b>trial</b>"}}
    terms_writer.save(trial.toml, content)
    place = Coordinator(trial.toml)
    place.prepare()
    place._alone()
    parties = {name: Member(trial.toml, trial.root / f"{name}.key", trial.folder(name)) for name in trial.files}
    stores = {name: parties[name].sign_up(file) for name, file in trial.files.items()}
    watches = {name: PartyWatch(store, "fed.example.org:8000") for name, store in stores.items()}
    post = InProcessTransport({name: RemoteClient(store) for name, store in stores.items()})
    watches["server"] = ServerWatch(place)
    Server(place.folder, place.terms.agreement(), place.terms.policy(), post).run()
    stores["north"].log(_refusal(), b"", "step 9 was asked for, but 3 were agreed")
    since = "2030-01-01T10:00:00"
    (place.folder / PRESENCE).write_text(
        json.dumps({"north": [True, since], "south": [True, since], "west": [False, ""]})
    )
    place.journal.write("started", again=False)
    yield trial, place, watches
    place.close()


def _refusal():
    from fedfactor.network.message_format import Head

    return Head("refusal", "r", 9, "north", "f" * 64)


@pytest.mark.slow
def test_what_happens_is_told_as_it_goes(ran):
    _, place, watches = ran
    said = watches["north"].news()
    assert re.match(r"Run \w+ is going on. Round 1 of 3: \d+ bytes sent.", said[0])
    assert said[2].startswith("Round 3 of 3")
    assert "Run" in said[3]
    assert "has ended" in said[3]
    assert said[4].startswith("REFUSED: step 9 was asked for")
    assert (said[2].fields["event"], said[2].fields["round"], said[2].fields["party"]) == ("round", 3, "north")
    assert said[2].fields["bytes"] > 0
    assert (said[4].fields["event"], said[4].fields["level"]) == ("refused", "warning")
    assert watches["north"].news() == []
    watch = watches["server"]
    said = watch.news()
    ended = said[-1].fields
    assert (ended["event"], ended["level"], ended["round"], ended["rounds"]) == ("run finished", "info", 3, 3)
    assert ended["run"] == place.status()["run"]
    assert ended["duration"] > 0
    assert said[0].fields == {"level": "info", "event": "connected", "party": "north"}
    assert not [line for line in ServerWatch(place).news() if "finished" in line]  # not again at the next serve
    assert said[:2] == ["north is connected.", "south is connected."]
    assert "finished after 3 rounds" in said[-1]
    (place.folder / PRESENCE).write_text(json.dumps({"north": [True, ""], "south": [False, ""], "west": [False, ""]}))
    assert watch.news() == ["south is no longer connected."]


@pytest.mark.slow
def test_a_round_with_a_secure_sum_counts_all_its_messages(tmp_path):
    files, changes = real.case("PooledNMF secure", tmp_path)
    trial = Trial(tmp_path / "all", files, changes)
    parties = {name: Member(trial.toml, trial.root / f"{name}.key", trial.folder(name)) for name in files}
    stores = {name: parties[name].sign_up(file, confirmed=True) for name, file in files.items()}
    watch = PartyWatch(stores["north"], "fed.example.org:8000")
    post = InProcessTransport({name: RemoteClient(store) for name, store in stores.items()})
    Server(trial.root / "server", trial.terms.agreement(), trial.terms.policy(), post).run()
    said = [line for line in watch.news() if line.startswith("Round")]
    sent = stores["north"].sent()
    first = next(i for i, line in enumerate(sent) if line["kind"] == "step")  # before it, sums of the counts of columns
    rounds = [sum(s["bytes"] for s in sent[first:] if s["index"] == index and s["kind"] != "end") for index in (0, 1)]
    assert said == [f"Round {index + 1} of 2: {size} bytes sent." for index, size in enumerate(rounds)]
    assert rounds[0] > sent[first]["bytes"]  # the masked upload is one of the messages of a round


def test_who_was_connected_to_an_earlier_serving_was_last_seen_then(tmp_path):
    trial = Trial(tmp_path / "all", real.write_rows(tmp_path), real.terms("PooledNMF", 3))
    place = trial.coordinator
    file = place.folder / PRESENCE
    file.write_text(json.dumps({"north": [True, "2030-01-01 10:00:00 UTC"], "south": [False, ""]}))
    os.utime(file, (1.9e9, 1.9e9))
    place._alone()
    os.utime(place.folder / SERVING, (2e9, 2e9))
    assert server_status(place)["not_connected"] == ["north (last came 2030-03-17 17:46:40 UTC)", "south (never came)"]
    place.close()


def get(where, **heads):
    request = urllib.request.Request(where, headers=heads)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with urllib.request.urlopen(request, timeout=30, context=context if where.startswith("https") else None) as page:
        return page.read().decode(), dict(page.headers)


@pytest.mark.slow
def test_the_pages_say_what_each_end_may_know(ran):
    trial, place, _ = ran
    served, where = serve_pages(server_pages(place), "127.0.0.1", 0, place.folder)
    text, heads = get(where)
    assert "default-src 'none'" in heads["Content-Security-Policy"]
    assert "&lt;b&gt;trial&lt;/b&gt;" in text
    assert "<b>" not in text
    assert text.count("not connected") == 1
    assert "3 of 3 rounds" in text
    assert "step 9" not in text  # why a party refused stays with it
    assert 'fedfactor_party_connected{party="west"} 0' in get(where + "metrics")[0]
    assert json.loads(get(where + "status.json")[0])["round"] == 3
    for path, host in (("", "evil.example:80"), ("etc/passwd", None)):
        with pytest.raises(urllib.error.HTTPError, match=r"403|404"):
            get(where + path, **({"Host": host} if host else {}))
    served.shutdown()
    served, where = serve_pages(party_pages(trial.folder("north")), "127.0.0.1", 0, trial.folder("north"))
    text, _ = get(where)
    assert "step 9 was asked for" in text
    assert "NOT connected: no fedfactor join runs here" in text
    assert re.search(r"fedfactor_refused_total 1\b", get(where + "metrics")[0])
    served.shutdown()


@pytest.mark.slow
def test_elsewhere_a_page_takes_tls_and_its_token(ran, tmp_path):
    trial, _, _ = ran
    served, where = serve_pages(party_pages(trial.folder("north")), "0.0.0.0", 0, tmp_path)
    here = where.replace("0.0.0.0", "127.0.0.1")
    assert here.startswith("https://")
    assert "What left this house" in get(here)[0]
    bare, token = here.rstrip("/").rsplit("/", 1)
    assert "fedfactor_connected" in get(f"{bare}/metrics", Authorization=f"Bearer {token}")[0]
    for wrong in (f"{bare}/", f"{bare}/{token[:-1]}x/", f"{bare}/metrics"):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            get(wrong)
    served.shutdown()


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, to open the page as a reader would")
def test_a_browser_opens_both_pages_without_complaint(ran, tmp_path):
    trial, place, _ = ran
    for pages, word in (
        (server_pages(place), "Who did what here"),
        (party_pages(trial.folder("north")), "What left this house"),
    ):
        served, where = serve_pages(pages, "127.0.0.1", 0, tmp_path)
        done = opened(where, tmp_path)
        served.shutdown()
        assert word in done.stdout
        assert not re.findall(r".*CONSOLE.*", done.stderr)
        # On a narrow screen no word of a table is torn in two, and the page itself does not scroll sideways.
        narrow = tmp_path / "narrow.html"
        narrow.write_text(f'<iframe width="420" height="900" srcdoc="{escape(pages[""][1]())}"></iframe>{MEASURE}')
        told = re.search(r'id="told">(.*?)</p>', opened(narrow.as_uri(), tmp_path).stdout)
        assert told, "nothing was measured"
        torn, wide, words = json.loads(unescape(told[1]))
        assert words > 20
        assert not torn
        assert wide <= 420


MEASURE = """<p id="told"></p><script>
const page = document.querySelector('iframe');
page.onload = () => {
  const torn = [], inside = page.contentDocument, part = inside.createRange();
  let words = 0;
  for (const cell of inside.querySelectorAll('td, th')) for (const node of cell.childNodes) {
    for (const word of (node.textContent.matchAll(/[^\\s-]+/g))) {
      const text = node.firstChild ?? node;
      part.setStart(text, word.index); part.setEnd(text, word.index + word[0].length);
      words += 1;
      if (new Set([...part.getClientRects()].map(each => each.top)).size > 1) torn.push(word[0]);
    }
  }
  document.getElementById('told').textContent =
    JSON.stringify([torn, inside.documentElement.scrollWidth, words]);
};
</script>"""


def opened(where, folder):
    """Open an address in Chromium; what it holds then, and what the browser complains of."""
    return subprocess.run(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr",
            "--disable-background-networking", f"--user-data-dir={folder / 'profile'}", "--window-size=800,900",
            "--virtual-time-budget=1000", "--dump-dom", where,
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_logs_have_times_a_bound_and_a_form_for_programs(tmp_path, monkeypatch, capsys):
    log = LogFile(tmp_path / "a.log", most=200, kept=2)
    for number in range(30):
        log.write(f"line {number}")
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["a.log", "a.log.1", "a.log.2"]
    assert all(path.stat().st_size <= 200 and path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ line 29", (tmp_path / "a.log").read_text().splitlines()[-1])
    log.close()
    monkeypatch.setenv(JSON, "1")
    log = LogFile(tmp_path / "b.log")
    log.write("\x1b[92mINFO\x1b[0m as an object")
    log.write("Warning: soon")
    log.write(Event("Round 4 of 12.", "round", run="a1", round=4, party="north", duration=0.5))
    plain, warned, event = map(json.loads, (tmp_path / "b.log").read_text().splitlines()[-3:])
    assert (plain["level"], plain["event"], plain["message"]) == ("info", "message", "INFO as an object")
    assert warned["level"] == "warning"
    assert event.pop("time").endswith("Z")
    assert event == {
        "level": "info", "event": "round", "run": "a1", "round": 4, "party": "north", "duration": 0.5,
        "message": "Round 4 of 12.",
    }  # fmt: skip
    told(Event("north is connected.", "connected", party="north"))
    assert json.loads(capsys.readouterr().out)["party"] == "north"
    monkeypatch.delenv(JSON)
    log.write("\x1b[1;31mred\x1b[0m")
    assert (tmp_path / "b.log").read_text().splitlines()[-1].endswith("Z red")
    log.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_log_on_a_full_disk_says_so_once_and_nothing_ends(capfd):
    log = LogFile(Path("/dev/full"))
    for line in ("one", "two"):
        log.write(line)
    assert capfd.readouterr().err == "Note: /dev/full cannot be written (No space left on device).\n"


def test_complaints_of_the_library_go_to_the_log_and_not_to_the_terminal(tmp_path, capfd, monkeypatch):
    own, shown = logging.getLogger("fedfactor"), []
    monkeypatch.setattr(own, "handlers", [])
    monkeypatch.setattr(own, "propagate", True)
    say = both(shown.append, tmp_path / "events.log")
    say("Round 1 of 3.")
    try:
        raise ValueError("a reason")
    except ValueError:
        own.exception("A message could not be answered.")
    assert shown == ["Round 1 of 3."]
    assert capfd.readouterr().err == ""
    lines = (tmp_path / "events.log").read_text().splitlines()
    assert lines[0].endswith("Z Round 1 of 3.")
    assert lines[-1].endswith("Z ValueError: a reason")


@pytest.mark.slow
def test_a_single_lost_request_is_no_news(ran):
    trial, _, _ = ran
    folder = trial.folder("north")
    watch = PartyWatch(ClientFolder(folder), "a:1")

    def wrote(error, time, since):
        about = {"connected": not error, "time": time, "since": since, "error": error, "status": 0}
        (folder / CONNECTION).write_text(json.dumps(about))
        return watch.news()

    now = time.time()
    assert "nothing listens" in wrote("Connection refused", now, now)[0]
    assert wrote("", now + 1, now + 1)[0].startswith("Connected to a:1")
    assert wrote("timed out", now + 5, now + 5) == []
    assert wrote("", now + 6, now + 6) == []
    assert wrote("timed out", now + 25, now + 8)[0].startswith("NOT connected")
    assert "certificate has expired" in wrote("certificate has expired", now + 40, now + 40)[0]
