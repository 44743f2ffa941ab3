"""Books of a data set: a budget that holds, lines that cannot vanish, and noise that is drawn once."""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import shutil
import sys
import threading

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor.algorithms import FedAvgNMF, PooledNMF
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.errors import CheckpointError, FedfactorError
from fedfactor.core.hash_chain import Chain, ChainError
from fedfactor.engines.checkpoint import Checkpoint
from fedfactor.privacy import Clip, Gaussian, Ledger, describe
from fedfactor.privacy.accounting import Release, epsilon_of
from fedfactor.privacy.ledger import BudgetError, Entry, rows_fingerprint

pytest.importorskip("dp_accounting")
pytest.importorskip("cryptography")
PUBLIC = {"row_bound": 3.0, "rows": 600}


def owners(seed=0):
    rng = np.random.default_rng(seed)
    V = rng.random((3, 8))
    return {f"c{i}": rng.exponential(size=(120, 3)) @ V for i in range(5)}


def entry(index, run="run", **more):
    return Entry(run, index, 20.0, "row", **more)


def filled(path, n=5):
    ledger = Ledger(path, epsilon=1.0)
    for index in range(n):
        ledger.debit(entry(index))
    return ledger


@pytest.mark.parametrize("how", ["first", "middle", "last", "all", "edited", "budget", "shortened"])
def test_lines_that_change_or_vanish_are_noticed(tmp_path, how):
    """A middle line that did not end in a brace was left out in silence: ε 1.0 became 0.69."""
    path = tmp_path / "books.jsonl"
    filled(path)
    lines = path.read_bytes().splitlines(keepends=True)
    changed = {
        "first": lines[1:], "middle": lines[:2] + lines[3:], "last": lines[:-1], "all": [],
        "edited": [line.replace(b"20.0", b"90.0") for line in lines],
        "budget": [lines[0].replace(b'"epsilon": 1.0', b'"epsilon": 9.0'), *lines[1:]],
        "shortened": [*lines[:2], lines[2][:-5] + b"\n", *lines[3:]],
    }[how]  # fmt: skip
    path.write_bytes(b"".join(changed))
    for look in (lambda: Ledger(path), lambda: Ledger(path).epsilon(), lambda: Ledger(path).debit(entry(9))):
        with pytest.raises(ChainError, match="was changed, or is damaged"):
            look()


def test_the_budget_is_in_the_file(tmp_path):
    path = tmp_path / "books.jsonl"
    filled(path)
    assert Ledger(path).budget == 1.0
    with pytest.raises(BudgetError, match="more than ε = 1"):
        Ledger(path).debit(Entry("other", 0, 0.5, "row"))
    with pytest.raises(BudgetError, match="raise_budget"):
        Ledger(path, epsilon=2.0)
    assert Ledger(path, epsilon=0.5).budget == 0.5
    Ledger(path).raise_budget(20.0)
    Ledger(path).debit(Entry("other", 0, 0.5, "row"))
    assert Ledger(path).budget == 20.0


def test_books_belong_to_their_rows(tmp_path):
    path = tmp_path / "books.jsonl"
    asked = fedfactor.dp(1.0, ledger=path, **PUBLIC)
    fedfactor.run(PooledNMF(3), owners(), rounds=2, privacy=asked)
    with pytest.raises(BudgetError, match="books of other rows"):
        fedfactor.run(PooledNMF(3), owners(1), rounds=2, privacy=asked)
    books = Ledger(path)
    books.take_over(owners(1))
    with pytest.raises(BudgetError, match="Not even one round"):  # what was spent stays spent
        fedfactor.run(PooledNMF(3), owners(1), rounds=2, privacy=asked)


def test_seeded_noise_is_not_paid_with(tmp_path):
    """It counted as ε = 1.0, and must be infinite: whoever knows the seed takes it off."""
    path = tmp_path / "books.jsonl"
    seeded = fedfactor.dp(1.0, ledger=path, noise_seed=3, **PUBLIC)
    run = fedfactor.run(PooledNMF(3), owners(), rounds=2, privacy=seeded)
    assert Ledger(path).epsilon() == math.inf
    assert Ledger(path).epsilon(as_if=True) <= 1
    assert run.privacy["void"]
    with pytest.raises(BudgetError, match="from a seed"):
        fedfactor.run(PooledNMF(3), owners(), rounds=2, privacy=fedfactor.dp(1.0, ledger=path, **PUBLIC))
    real = tmp_path / "real.jsonl"
    fedfactor.run(PooledNMF(3), owners(), rounds=2, privacy=fedfactor.dp(0.5, ledger=real, **PUBLIC))
    with pytest.raises(BudgetError, match="from a seed"):
        Ledger(real).debit(entry(0, "seeded", simulation=True))


def test_older_books_go_on_as_a_chain(tmp_path):
    path = tmp_path / "books.jsonl"
    old = [
        {"run": "a", "round": i, "noise_multiplier": 9.0, "unit": "row", "sampling": 1.0, "what": "sum",
         "algorithm": "PooledNMF", "proven": True, "simulation": False, "date": "2026-01-01"} for i in range(3)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in old))
    spent = Ledger(path).epsilon()
    assert 0 < spent < 2
    Ledger(path, epsilon=5.0).debit(entry(0, "b"))
    assert len(Ledger(path).entries()) == 4
    assert Ledger(path).epsilon() > spent
    assert Ledger(path).budget == 5.0
    path.write_bytes(path.read_bytes().replace(b"9.0", b"8.0"))
    with pytest.raises(ChainError):
        Ledger(path).entries()


# ------------------------------------------------------------------------------------------------- noise is drawn once
def begin(folder, books, stop=2, rounds=6, every=10, **more):
    """Run, killed after some rounds."""

    def crash(record):
        if record.index == stop:
            raise KeyboardInterrupt

    privacy = fedfactor.dp(1.0, ledger=books, **PUBLIC)
    options = {"rounds": rounds, "seed": 0, "privacy": privacy, "checkpoint": Checkpoint(folder, every), **more}
    if stop is None:
        return fedfactor.run(PooledNMF(3), owners(), **options)
    with pytest.raises(KeyboardInterrupt):
        fedfactor.run(PooledNMF(3), owners(), callbacks=[crash], **options)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["distributed", "local"])
def test_copies_of_an_unfinished_folder_do_not_go_on(tmp_path, noise):
    """Three plain copies gave three results with different noise, and the ledger said ε = 1.0."""
    books = tmp_path / "books.jsonl"
    privacy = fedfactor.dp(1.0, ledger=books, noise=noise, **PUBLIC)
    begin(tmp_path / "run", books, every=1, privacy=privacy)
    for name in ("copy", "backup"):
        shutil.copytree(tmp_path / "run", tmp_path / name)
        with pytest.raises(CheckpointError, match="is a copy"):
            begin(tmp_path / name, books, None, every=1, privacy=privacy)
    run = begin(tmp_path / "run", books, None, every=1, privacy=privacy)
    assert run.rounds == 6
    assert Ledger(books).epsilon() <= 1
    shutil.rmtree(tmp_path / "run")
    shutil.move(tmp_path / "copy", tmp_path / "run")  # put back from a copy: rounds since then are not known here
    with pytest.raises(CheckpointError, match="is a copy"):
        begin(tmp_path / "run", books, None, every=1, privacy=privacy)


@pytest.mark.parametrize("gone", ["parcels", "outbox", "some"])
def test_a_sealed_round_without_its_parcels_is_not_drawn_again(tmp_path, gone):
    """Six runs with files of the outbox removed: ε = 1.0 was told, 2.64 was true."""
    books = tmp_path / "books.jsonl"
    begin(tmp_path / "run", books)
    files = sorted((tmp_path / "run" / "outbox").glob("*.safetensors"))
    if gone == "outbox":
        shutil.rmtree(tmp_path / "run" / "outbox")
    for file in files if gone == "parcels" else files[3:4] if gone == "some" else []:
        file.unlink()
    with pytest.raises(CheckpointError, match="must not be drawn for it again"):
        begin(tmp_path / "run", books, None)


@pytest.mark.slow
def test_whoever_deletes_the_releases_too_pays_again(tmp_path):
    books = tmp_path / "books.jsonl"
    begin(tmp_path / "run", books)
    before = len(Ledger(books).entries())
    shutil.rmtree(tmp_path / "run" / "outbox")
    for file in (tmp_path / "run").glob("*"):
        file.unlink()
    assert begin(tmp_path / "run", books, None).status == "budget"  # a new run, which what is left does not pay for
    assert len(Ledger(books).entries()) > before
    assert Ledger(books).epsilon() <= 1


@pytest.mark.slow
def test_a_flipped_bit_in_the_outbox_is_noticed(tmp_path):
    books = tmp_path / "books.jsonl"
    begin(tmp_path / "run", books)
    file = sorted((tmp_path / "run" / "outbox").glob("*.safetensors"))[0]
    data, rng = file.read_bytes(), np.random.default_rng(0)
    for _ in range(10):
        bit = int(rng.integers(8 * len(data)))
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        with pytest.raises(CheckpointError):
            begin(tmp_path / "run", books, None)
    file.write_bytes(data)
    assert begin(tmp_path / "run", books, None).rounds == 6


def _hold(folder, ready, done):
    from pathlib import Path

    from fedfactor.privacy.sent_uploads import Outbox, run_name

    box = Outbox(Path(folder), run_name(Path(folder)))
    ready.set()
    done.wait(60)
    del box


@pytest.mark.slow
def test_two_processes_do_not_work_in_one_folder(tmp_path):
    """Both finished, with different V's, and one set of entries in the ledger."""
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(str(tmp_path / "run"), ready, done))
    other.start()
    try:
        assert ready.wait(60)
        with pytest.raises(CheckpointError, match="Another process is at work"):
            begin(tmp_path / "run", tmp_path / "books.jsonl", None)
    finally:
        done.set()
        other.join()
    assert begin(tmp_path / "run", tmp_path / "books.jsonl", None).rounds == 6


def test_a_release_that_costs_at_delta_zero_is_kept_counted_and_not_changed(tmp_path):
    path = tmp_path / "books.jsonl"
    ledger = Ledger(path, epsilon=1.0, unit="client")
    pure = [Entry("run", index, 0.0, "client", epsilon=0.4) for index in range(3)]
    ledger.debit(pure[0])
    ledger.debit(pure[1])
    assert Ledger(path).epsilon() == pytest.approx(0.8)
    with pytest.raises(BudgetError, match="more than"):
        ledger.debit(pure[2])
    with pytest.raises(BudgetError, match="other noise than now"):
        ledger.debit(Entry("run", 1, 0.0, "client", epsilon=0.3))
    assert Ledger(path).epsilon() == pytest.approx(0.8)


def test_a_report_without_books_counts_the_rounds_of_its_run():
    links = (Clip(1.0), Gaussian(5.0, 1.0, whole=True, share="local"))
    privacy = fedfactor.run(FedAvgNMF(3), owners(), rounds=2, privacy=links).privacy
    assert privacy["epsilon"] == pytest.approx(epsilon_of([Release(5.0)] * 2, 1e-5))
    assert "ε = inf" not in describe(privacy)


class TestInMemory:
    def test_defaults_are_no_budget_for_rows(self):
        ledger = Ledger()
        assert (ledger.budget, ledger.delta, ledger.unit, ledger.accountant) == (math.inf, 1e-5, "row", "rdp")
        assert (ledger.rows, ledger.entries(), ledger.epsilon()) == ("", [], 0.0)
        given = Ledger(epsilon=2.0, delta=1e-3, unit="client", accountant="pld")
        assert (given.budget, given.delta, given.unit, given.accountant) == (2.0, 1e-3, "client", "pld")

    @pytest.mark.parametrize(
        "options",
        [{"epsilon": 0}, {"epsilon": -1}, {"delta": 0}, {"delta": 1}, {"unit": "cell"}, {"accountant": "x"}],
    )
    def test_figures_that_mean_nothing(self, options):
        with pytest.raises(ValueError, match=r"A ledger needs|must be row, subject or client"):
            Ledger(**options)

    def test_an_entry_protects_where_noise_is_proven(self):
        assert entry(0).protects
        assert Entry("r", 0, 0.0, "row", epsilon=1.0).protects
        assert not Entry("r", 0, 0.0, "row").protects
        assert not Entry("r", 0, 2.0, "row", proven=False).protects
        assert entry(0).key == ("", "run", 0, "sum")
        assert entry(3, sampling=0.5).release == Release(20.0, 0.5, None)
        plain = Entry("r", 0, 1.0, "row")
        assert (plain.sampling, plain.proven, plain.simulation, plain.epsilon) == (1.0, True, False, None)

    @pytest.mark.parametrize(
        ("books", "release", "covered"),
        [
            ("row", "row", True), ("row", "subject", True), ("row", "client", True), ("subject", "subject", True),
            ("subject", "row", False), ("subject", "client", False), ("client", "client", True),
            ("client", "row", False), ("client", "subject", False),
        ],
    )  # fmt: skip
    def test_whom_a_release_protects(self, books, release, covered):
        ledger = Ledger(unit=books, accountant="pld")
        ledger.debit(Entry("r", 0, 20.0, release))
        assert math.isfinite(ledger.epsilon()) is covered

    def test_a_release_counts_once_and_does_not_change(self):
        ledger = Ledger(epsilon=1.0, accountant="pld")
        ledger.debit(entry(0))
        spent = ledger.epsilon()
        ledger.debit(entry(0))
        assert ledger.epsilon() == spent
        for other in (Entry("run", 0, 10.0, "row"), Entry("run", 0, 20.0, "client")):
            with pytest.raises(BudgetError, match="in the books with other noise than now"):
                ledger.debit(other)
        assert ledger.epsilon(run="other") == 0.0
        assert ledger.epsilon(run="run") == spent
        assert ledger.epsilon(1e-9) > spent
        assert ledger.epsilon(accountant="rdp") > spent

    def test_the_last_round_that_fits_is_paid_for(self):
        limit = Ledger(accountant="pld")
        for index in range(3):
            limit.debit(entry(index))
        ledger = Ledger(epsilon=limit.epsilon(), accountant="pld")
        for index in range(3):
            assert ledger.affords(entry(index))
            ledger.debit(entry(index))
        assert not ledger.affords(entry(3))
        assert ledger.affords(entry(2))
        with pytest.raises(BudgetError, match="Round 3 of PooledNMF would bring this data set to more than"):
            ledger.debit(entry(3))
        with pytest.raises(BudgetError, match="Round 4 of FNMF"):
            ledger.debit(entry(4, algorithm="FNMF"))
        ledger.raise_budget(9.0)
        ledger.debit(entry(3))
        assert len(ledger.entries()) == 4

    def test_seeded_noise_and_real_noise_have_books_of_their_own(self):
        ledger = Ledger(accountant="pld")
        ledger.debit(entry(0, simulation=True))
        assert ledger.epsilon() == math.inf
        assert ledger.epsilon(as_if=True) < 9
        with pytest.raises(BudgetError, match="Noise from a seed does not protect"):
            ledger.debit(entry(1))

    def test_without_a_file_rows_and_witnesses_are_nobodys(self):
        ledger = Ledger()
        ledger.belong("x")
        ledger.belong("y")
        ledger.take_over("z")
        ledger.bind(None, "x")
        assert ledger.rows == ""


class TestInAFile:
    def test_the_smaller_of_two_budgets_holds(self, tmp_path):
        path = tmp_path / "books"
        filled(path, 1)
        assert Ledger(path).budget == Ledger(path, epsilon=1.0).budget == 1.0
        assert Ledger(path, epsilon=0.5).budget == 0.5
        assert Ledger(path, delta=1e-3, unit="client").delta == 1e-5
        assert Ledger(path, unit="client").unit == "row"
        with pytest.raises(BudgetError, match=r"holds a budget of ε = 1, and ε = 1\.1 is more"):
            Ledger(path, epsilon=1.1)
        Ledger(path).raise_budget(3.0)
        assert Ledger(path).budget == Ledger(path, epsilon=3.0).budget == 3.0
        assert len(Ledger(path).entries()) == 1

    def test_books_without_a_budget(self, tmp_path):
        ledger = Ledger(tmp_path / "books")
        ledger.debit(entry(0))
        assert Ledger(tmp_path / "books").budget == math.inf
        assert json.loads((tmp_path / "books").read_text().splitlines()[0])["epsilon"] == "inf"

    def test_rows_that_changed_go_on_with_what_was_spent(self, tmp_path):
        ledger = Ledger(tmp_path / "books", epsilon=1.0)
        ledger.belong("x")
        ledger.belong("x")
        assert ledger.rows == "x"
        with pytest.raises(BudgetError, match="holds the books of other rows"):
            ledger.belong("y")
        ledger.take_over("y")
        ledger.belong("y")
        assert Ledger(tmp_path / "books").rows == "y"
        assert len((tmp_path / "books").read_text().splitlines()) == 3

    def test_books_of_another_version(self, tmp_path):
        chain = Chain(tmp_path / "books")
        chain.append({"ledger": 3})
        with pytest.raises(FedfactorError, match="a ledger of another version"):
            Ledger(tmp_path / "books")

    def test_lines_of_the_first_format(self, tmp_path):
        path = tmp_path / "books"
        lines = [json.dumps({"run": "r", "round": i, "noise_multiplier": 20.0, "unit": "row"}) for i in range(3)]
        path.write_text("\n".join([*lines[:2], ""]) + lines[2][:20])
        ledger = Ledger(path, epsilon=2.0)
        assert len(ledger.entries()) == 2  # the last was torn
        assert (ledger.rows, ledger.budget) == ("", 2.0)
        path.write_text("\n".join([lines[0], lines[1][:20], lines[2], ""]))
        with pytest.raises(FedfactorError, match="Line 2 of the ledger"):
            Ledger(path).entries()
        path.write_text("\n".join([*lines, ""]))
        Ledger(path, epsilon=2.0).raise_budget(3.0)
        assert len(Ledger(path).entries()) == 3
        assert Ledger(path).budget == 3.0
        assert (tmp_path / "books.format-1").exists()


def test_a_fingerprint_knows_names_types_cells_and_masks():
    X = np.arange(6.0).reshape(2, 3)
    seen = np.ones((2, 3), bool)
    holes = seen.copy()
    holes[0, 0] = False
    stored = sparse.csr_array(X)
    federations = [
        {"a": X}, {"b": X}, {"a": X.astype("f4")}, {"a": X + 1}, {"a": X.reshape(3, 2)}, {"a": X[:1], "b": X[1:]},
        {"a": Shard(X, seen)}, {"a": Shard(X, holes)}, {"a": stored}, {"a": Shard(stored, "stored")},
    ]  # fmt: skip
    found = [rows_fingerprint(Federation(owners)) for owners in federations]
    assert len(set(found)) == len(found)
    assert rows_fingerprint(Federation({"a": np.asfortranarray(X)})) == found[0]


def _attempt(path, worker, threads, attempts, barrier, results):
    """Debit from several threads of one process; report what was granted, and errors other than refusals."""
    granted, wrong = [], []

    def work(thread):
        scope = f"federation {(worker + thread) % 2}"
        ledger = Ledger(path)
        for index in range(attempts):
            one = Entry("run", index, 400.0, "row", scope=scope, what=f"{worker} {thread}")
            try:
                ledger.debit(one)
                granted.append(one.key)
            except BudgetError:
                pass
            except Exception as error:
                wrong.append(repr(error))

    barrier.wait(120)
    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    results.put((granted, wrong))


@pytest.mark.slow
@pytest.mark.integration
def test_a_thousand_parallel_attempts_leave_no_release_unpaid(tmp_path):
    """Four processes of five threads each: what was granted is exactly what is in the ledger, within its budget."""
    path, context = tmp_path / "books.jsonl", multiprocessing.get_context("spawn")
    most = epsilon_of([Release(400.0)] * 300, 1e-5)
    Ledger(path, epsilon=most).belong("rows")
    barrier, results = context.Barrier(4), context.Queue()
    workers = [context.Process(target=_attempt, args=(str(path), n, 5, 50, barrier, results)) for n in range(4)]
    for one in workers:
        one.start()
    found = [results.get(timeout=300) for _ in workers]
    for one in workers:
        one.join()
    granted = [key for keys, _ in found for key in keys]
    assert [wrong for _, wrong in found if wrong] == []
    assert len(granted) == len(set(granted)) == 300  # of 1,000 attempts
    assert sorted(entry.key for entry in Ledger(path).entries()) == sorted(granted)


def test_a_ledger_in_memory_is_debited_by_one_thread_at_a_time():
    ledger, granted = Ledger(epsilon=epsilon_of([Release(400.0)] * 20, 1e-5)), []

    def work(thread):
        for index in range(10):
            with contextlib.suppress(BudgetError):
                ledger.debit(Entry(f"run {thread}", index, 400.0, "row"))
                granted.append((thread, index))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    finally:
        sys.setswitchinterval(before)
    assert len(granted) == len(ledger.entries()) == 20
