"""Links by name, as parties write them into their terms."""

from __future__ import annotations

import pytest

from fedfactor.aggregation import Robust
from fedfactor.algorithms import FedAvgNMF, PooledNMF
from fedfactor.core.algorithm import Meta
from fedfactor.core.errors import IncompatibleError
from fedfactor.privacy import Clip, Gaussian, PaperNoise, SecureSum
from fedfactor.privacy.transform_registry import agreed_channel, agreed_links, link_of

META = Meta(5, ("a", "b", "c"), n_rows=300)
NOISE = [{"link": "Clip", "norm": 1.0}, {"link": "Gaussian", "noise_multiplier": 2.0, "sensitivity": 1.0, "whole": True,
          "share": "local"}]  # fmt: skip


def test_a_link_is_made_of_its_name_and_settings():
    assert link_of({"link": "Clip", "norm": 2.0}) == Clip(2.0)
    assert link_of({"link": "PaperNoise", "clip": [0, 1]}) == PaperNoise(clip=(0, 1))
    assert link_of({"link": "Robust"}) == Robust()


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"norm": 1.0}, "there is no link None"),
        ({"link": "Cliq"}, "there is no link 'Cliq'"),
        ({"link": "Ledger"}, "there is no link 'Ledger'"),
        ({"link": "dp"}, "there is no link 'dp'"),
        ({"link": "Clip", "norm": 1.0, "odd": 2}, "Clip has no setting 'odd'. Its settings are norm"),
        ({"link": "Clip"}, "Clip needs the setting 'norm'"),
    ],
)
def test_what_makes_no_link(entry, says):
    with pytest.raises(ValueError, match=says):
        link_of(entry)


def test_a_secure_sum_between_parties_is_of_all_and_asked_for_elsewhere():
    assert agreed_links([], secure=False, n_clients=3) == ()
    links = agreed_links([{"link": "Clip", "norm": 2.0}], secure=True, n_clients=5)
    assert links == (Clip(2.0), SecureSum(min_clients=5, threshold=1.0))
    with pytest.raises(ValueError, match="asked for with protect = 'secure-sum'"):
        agreed_links([{"link": "SecureSum"}], secure=False, n_clients=3)


def test_no_links_no_channel():
    assert agreed_channel([], FedAvgNMF(2), META, "run", secure=False) is None


def test_books_are_kept_where_there_is_noise_and_a_folder(tmp_path):
    equal = FedAvgNMF(2, weights="equal")
    with_noise = agreed_channel(NOISE, equal, META, "run", secure=False, folder=tmp_path)
    assert [ledger.path for ledger in with_noise.books.ledgers] == [tmp_path / "ledger.jsonl"]
    assert isinstance(with_noise.links[1], Gaussian)
    assert not with_noise.simulation
    for named, folder in ((NOISE, None), ([{"link": "Clip", "norm": 1.0}], tmp_path)):
        assert agreed_channel(named, equal, META, "run", secure=False, folder=folder).books.ledgers == []


def test_clients_must_count_alike_under_noise_and_nobody_changes_that_in_silence():
    with pytest.raises(IncompatibleError, match="Set weights = 'equal'"):
        agreed_channel(NOISE, FedAvgNMF(2), META, "run", secure=False)
    agreed_channel([{"link": "Clip", "norm": 1.0}], FedAvgNMF(2), META, "run", secure=False)
    assert agreed_channel([], PooledNMF(2), META, "run", secure=True).hides
