"""A channel in use: its books, its receiver, and the cohorts that it lets through."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from fedfactor.aggregation import Robust
from fedfactor.algorithms import FNMF, FedAvgNMF
from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.errors import NotFiniteError, ProtocolError
from fedfactor.core.transforms import Transform
from fedfactor.privacy import Clip, Gaussian, Ledger, Minimums, SecureSum
from fedfactor.privacy.ledger import BudgetError, Entry
from fedfactor.privacy.minimums import PrivacyWarning, RefusedError
from fedfactor.privacy.pipeline import Books
from fedfactor.privacy.planner import plain_channel

META = Meta(4, ("a", "b", "c"), n_rows=300)
AT = Round(0, 0, participants=("a", "b", "c"))
ALGORITHM = FedAvgNMF(2, weights="equal")


class Heard(Transform):
    """Hears what the server learns."""

    def __init__(self):
        self.totals = []

    def heard(self, total, at, down):
        self.totals.append(total)


def upload(algorithm=ALGORITHM, value=1.0):
    kind, spec = next((k, s) for k, s in algorithm.messages(META).items() if hasattr(k, "uplink"))
    return kind(**{name: np.full(leaf.shape, value, leaf.dtype) for name, leaf in spec.items() if "." not in name})


def opened(*links, algorithm=ALGORITHM, **more):
    channel = plain_channel(links, algorithm, META, "run", **more)
    down = algorithm.init_server(META, AT)[1]
    return channel, channel.open(algorithm.messages(META), AT, down)


def vars_of(record):
    return {name: getattr(record, name) for name in (f.name for f in fields(record))}


def test_books_write_a_release_into_every_ledger_or_refuse():
    first, second = Ledger(accountant="pld"), Ledger(epsilon=0.2, accountant="pld")
    books = Books([first, second], Entry("r", 0, 20.0, "client"))
    assert books.affords(0)
    books.debit(0)
    books.debit(-1, Entry("r", -1, 90.0, "client", what="survey"))
    assert [len(ledger.entries()) for ledger in (first, second)] == [2, 2]
    assert first.entries()[1].what == "survey"
    assert not books.affords(1)
    with pytest.raises(BudgetError):
        books.debit(1)
    Books([], books.entry).check_first()
    with pytest.raises(BudgetError, match="Not even one round fits"):
        Books([Ledger(epsilon=0.01, accountant="pld")], books.entry).check_first()


def test_a_plain_channel_sums_and_counts():
    heard = Heard()
    channel, receiver = opened(heard)
    assert (receiver.present, receiver.bytes_up, receiver.gathered) == ([], 0, False)
    for name, value in zip("abc", (1.0, 2.0, 4.0), strict=True):
        receiver.add(name, upload(value=value))
    assert receiver.present == ["a", "b", "c"]
    assert receiver.bytes_up > 0
    total = receiver.combined
    assert all((leaf == 7.0).all() for leaf in vars_of(total).values() if leaf is not None)
    assert heard.totals == [total]
    assert receiver.rejected == {}
    assert not channel.hides
    assert channel.outbox is channel.noise_seed is None
    assert channel.affords(5)


def test_uploads_of_another_kind_or_form_end_the_round():
    _, receiver = opened(Clip(9.0))
    receiver.add("a", upload())
    with pytest.raises(ProtocolError):
        receiver.add("b", upload(FNMF(2)))


def test_what_is_not_finite_is_left_out_where_the_server_sees_it():
    channel, receiver = opened(Heard())
    receiver.add("a", upload())
    receiver.add("b", upload(value=np.nan))
    assert receiver.present == ["a"]
    assert "NaN" in receiver.rejected["b"]
    assert channel.rejected == 1
    _, hidden = opened(SecureSum(min_clients=2))
    with pytest.raises(NotFiniteError):
        hidden.add("b", upload(value=np.nan))
    _, changed = opened(Clip(1.0))
    with pytest.raises(NotFiniteError):
        changed.add("b", upload(value=np.nan))
    _, forgiving = opened(Robust())
    forgiving.add("b", upload(value=np.nan))
    assert "b" in forgiving.rejected


def test_what_cannot_be_true_is_left_out_where_the_server_sees_it():
    class Doubting(FedAvgNMF):
        def doubt(self, up):
            return "it lies"

    for link, left_out in ((Heard(), True), (Clip(1e9), False)):
        _, receiver = opened(link, algorithm=Doubting(2, weights="equal"))
        receiver.add("a", upload())
        assert receiver.rejected == ({"a": "it lies"} if left_out else {})


def test_gathered_uploads_are_seen_one_by_one():
    algorithm = FNMF(2)
    _, receiver = opened(Clip(1e-3), algorithm=algorithm)
    for name in "ab":
        receiver.add(name, upload(algorithm))
    assert receiver.gathered
    found = receiver.combined
    assert set(found) == {"a", "b"}
    assert receiver.present == ["a", "b"]


def test_sums_of_other_clients_than_before_are_refused_between_parties():
    secure = SecureSum(min_clients=2)
    channel, _ = opened(secure, simulation=False)
    channel.judge(AT, ["c", "b", "a"])
    with pytest.raises(
        RefusedError, match=r"The clients of round 0 are not those of the round before \('b' came or went"
    ):
        channel.judge(AT, ["a", "c"])
    told, _ = opened(secure, simulation=True)
    with pytest.warns(PrivacyWarning, match="'c' came or went"):
        told.judge(AT, ["a", "b"])
    told.judge(AT, ["a", "b"])  # the same as the round before
    for free in (opened(SecureSum(min_clients=2, allow_dropouts=True), simulation=False)[0], opened(Clip(1.0))[0]):
        free.judge(AT, ["a", "b"])
    allowed, _ = opened(secure, simulation=False, minimums=Minimums(allow=("changed-cohort",)))
    allowed.judge(AT, ["a", "b"])


def test_noise_that_counts_lets_clients_come_and_go():
    noisy = plain_channel(
        (Clip(1.0), Gaussian(5.0, 1.0, True, honest=2), SecureSum(min_clients=2)),
        ALGORITHM,
        META,
        "run",
        simulation=False,
    )
    assert noisy.books.entry.protects
    noisy.judge(AT, ["a", "b"])


def test_a_sum_that_was_formed_elsewhere_is_taken():
    channel, receiver = opened(Clip(9.0))
    parcel, layout = channel.sender.encode("a", upload(), AT, ALGORITHM.init_server(META, AT)[1])
    receiver.replace_by(parcel, layout, ["a"])
    assert receiver.present == ["a"]
    assert receiver.bytes_up == parcel.nbytes


def test_uploads_that_were_sent_through_the_links_are_not_sent_again():
    channel = plain_channel((Clip(1e-6),), ALGORITHM, META, "run")
    down = ALGORITHM.init_server(META, AT)[1]
    for encoded in (False, True):
        receiver = channel.open(ALGORITHM.messages(META), AT, down, encoded=encoded)
        receiver.add("a", upload(value=3.0))
        moved = np.abs(next(iter(vars_of(receiver.combined).values())) - down.V).max()
        assert bool(moved > 1.0) is encoded


def test_a_fingerprint_names_the_settings_of_links():
    said = plain_channel((Clip(1.5), Heard()), ALGORITHM, META, "run").fingerprint()["privacy"]
    assert said == ["Clip {'norm': 1.5}", "Heard {}"]


def test_noisy_uploads_are_kept_in_a_folder_and_forgotten_with_a_checkpoint(tmp_path):
    links = (Clip(1.0), Gaussian(5.0, 1.0, True, "local"))
    channel = plain_channel(links, ALGORITHM, META, "run", folder=tmp_path)
    assert channel.outbox is not None
    channel.open(ALGORITHM.messages(META), AT, ALGORITHM.init_server(META, AT)[1]).add("a", upload())
    assert len(list((tmp_path / "outbox").glob("000000-*"))) == 1
    channel.settled(0)
    assert len(list((tmp_path / "outbox").glob("000000-*"))) == 1
    channel.settled(1)
    assert not list((tmp_path / "outbox").glob("000000-*"))
    assert channel.outbox.settled == 1
    assert plain_channel((Clip(1.0),), ALGORITHM, META, "run", folder=tmp_path).outbox is None
