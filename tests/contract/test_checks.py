"""Settings that do not go together, and how much one row can change: both sides of every bound."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fedfactor import algorithms
from fedfactor.algorithms import (
    DSANLS,
    FNMF,
    FedSPLIT,
    PooledBMF,
    PooledEASE,
    PooledNMF,
    Popularity,
    SynSD,
)
from fedfactor.core.algorithm import Meta
from fedfactor.core.errors import DataError, IncompatibleError
from fedfactor.linalg.row_clipping import CURVED_NORM, ROW_CLIP, curved_error, summation_error
from fedfactor.recommend.ease import _falls

META = Meta(6, ("a", "b"), n_rows=50)
CLIP = {"row_clip": 1.0, "row_count": 50.0}

GOOD = [
    FNMF(3, alignment="knn", neighbours=3),
    FedSPLIT(2, scale=(1.0, 5.0)),
    PooledEASE(1),
    PooledEASE(6),
    PooledEASE(min_pairs=2),
    PooledEASE(min_users=1, **CLIP),
    Popularity(min_users=1, **CLIP),
    Popularity(min_users=2),
    PooledBMF(2, thresholds=(0.01, 1.0), penalties=(1, 2)),
    PooledBMF(2, solver="proximal", **CLIP),
    DSANLS(2, schedule_start=0.0, growth=0.0),
    SynSD(2, solver="gradient", schedule_start=0.1),
    PooledNMF(3, n_private=3),
    PooledNMF(2, weights={"a": 1, "b": 0}),
    PooledNMF(2, weights={"a": 1, "b": 2, "stranger": -1}),
    PooledNMF(2, alpha_U=0.1, alpha_V=0),
    PooledNMF(2, alpha_U=0.1),
    PooledNMF(2, weights="mean"),
    PooledNMF(2, start="wide"),
    PooledNMF(2, start="stacked"),
    PooledNMF(2, **CLIP),
    PooledNMF(2, noisy_step="newton", row_noise=1.0, **CLIP),
]

BAD = [
    (FNMF(3, alignment="knn", neighbours=4), "neighbours=4 must not exceed"),
    (FedSPLIT(2, scale=(5.0, 5.0)), "lowest and the highest"),
    (FedSPLIT(2, scale=(1.0, 2.0, 3.0)), "lowest and the highest"),
    (FedSPLIT(2, overrides=(("c", {"iterations": 3}),)), "no client of this federation"),
    (FedSPLIT(2, overrides=(("a", {"n_components": 3}),)), "An owner may set"),
    (PooledEASE(0), "low_rank=0"),
    (PooledEASE(7), "between 1 and 6"),
    (PooledEASE(2, min_pairs=2), "whole Gram matrix"),
    (PooledEASE(min_users=2, **CLIP), "exact counts"),
    (PooledEASE(min_users=1, min_pairs=2, **CLIP), "exact counts"),
    (Popularity(min_users=2, **CLIP), "exact counts"),
    (PooledBMF(2, thresholds=()), "thresholds="),
    (PooledBMF(2, thresholds=(0.0,)), "thresholds="),
    (PooledBMF(2, penalties=()), "penalties="),
    (PooledBMF(2, penalties=(1.5,)), "penalties="),
    (PooledBMF(2, **CLIP), "exact counts"),
    (DSANLS(2, schedule_start=-0.1), "schedule_start=-0.1"),
    (DSANLS(2, growth=-0.1), "growth=-0.1"),
    (SynSD(2, solver="gradient", schedule_start=0.0), "schedule_start=0.0"),
    (PooledNMF(3, n_private=4), "together exceed the 6 features"),
    (PooledNMF(2, n_private=1, loss="itakura-saito"), "squared and the Kullback-Leibler loss"),
    (PooledNMF(2, weights="most"), "'most' is not known"),
    (PooledNMF(2, weights=3), "must be 'rows'"),
    (PooledNMF(2, weights={"a": 1}), "nothing about owner 'b'"),
    (PooledNMF(2, weights={"a": 1, "b": -1}), "0 or more"),
    (PooledNMF(2, weights={"a": 1, "b": math.inf}), "0 or more"),
    (PooledNMF(2, weights={"a": 1, "b": True}), "0 or more"),
    (PooledNMF(2, weights={"a": 0, "b": 0}), "All weights are zero"),
    (PooledNMF(2, alpha_V=0.1), "without alpha_U"),
    (PooledNMF(2, alpha_U=0.1, weights="mean"), "Set alpha_V=0"),
    (PooledNMF(2, start="stacked", loss="kullback-leibler"), "this loss has none"),
    (PooledNMF(2, row_clip=1.0), "must both be given"),
    (PooledNMF(2, row_clip=0.0, row_count=50.0), "must both be given"),
    (PooledNMF(2, row_clip=1.0, row_count=0.0), "must both be given"),
    (PooledNMF(2, row_clip=1.0, row_count=math.inf), "must both be given"),
    (PooledNMF(2, noisy_step="newton", **CLIP), "must be stated"),
    (PooledNMF(2, alpha_U=0.1, **CLIP), "Leave alpha_U alone"),
    (PooledNMF(2, n_private=1, **CLIP), "Leave n_private alone"),
    (PooledNMF(2, weights="equal", **CLIP), "Leave weights alone"),
    (PooledNMF(2, start="wide", **CLIP), "Leave start alone"),
    (PooledNMF(2, loss="kullback-leibler", **CLIP), "Leave loss alone"),
]


@pytest.mark.parametrize("method", GOOD, ids=str)
def test_settings_at_a_bound_are_taken(method):
    method.check(META)


@pytest.mark.parametrize(("method", "said"), BAD, ids=str)
def test_settings_beyond_it_are_refused(method, said):
    with pytest.raises((ValueError, IncompatibleError, DataError), match=said):
        method.check(META)


def test_correlations_take_four_features():
    method = FNMF(2, alignment="lap_rho")
    method.check(Meta(4, ("a",), n_rows=9))
    with pytest.raises(ValueError, match="at least 4 features"):
        method.check(Meta(3, ("a",), n_rows=9))
    FNMF(2).check(Meta(3, ("a",), n_rows=9))


def test_missing_cells_and_unknown_numbers_of_rows():
    holes, unknown = replace(META, masked=True), replace(META, n_rows=None)
    PooledNMF(2).check(holes)
    for method in (PooledNMF(2, start="wide"), PooledNMF(2, start="stacked"), PooledNMF(2, **CLIP)):
        with pytest.raises(IncompatibleError, match=r"some cells are missing|sums of Newton steps alone"):
            method.check(holes)
    PooledNMF(2, alpha_U=0.1, alpha_V=0).check(unknown)
    with pytest.raises(IncompatibleError, match="not known here"):
        PooledNMF(2, alpha_U=0.1).check(unknown)


def test_a_start_has_the_shape_of_the_run():
    PooledNMF(2).starting_at(np.ones((2, 6))).check(META)
    for V in (np.ones((3, 6)), np.ones((2, 5))):
        with pytest.raises(DataError, match="Start where both are the same"):
            PooledNMF(2).starting_at(V).check(META)


def test_what_one_row_can_change():
    for method in (PooledNMF(2), PooledBMF(2, solver="proximal"), PooledEASE(), Popularity()):
        assert method.sensitivity(META) is None
    assert Popularity(row_clip=0.7, row_count=50.0).sensitivity(META) == ("row", 0.7)
    for balance, power in ((0.0, 2.0), (0.5, 1.0), (1.0, 0.0)):
        method = PooledEASE(balance=balance, row_clip=3.0, row_count=50.0)
        assert method.sensitivity(META) == ("row", pytest.approx(3.0**power))
    rounding = summation_error(100.0, 2, 6)
    assert PooledNMF(2, **CLIP).sensitivity(META) == ("row", ROW_CLIP + rounding)
    assert PooledBMF(2, solver="proximal", **CLIP).sensitivity(META) == ("row", ROW_CLIP + rounding)
    newton = PooledNMF(2, noisy_step="newton", row_noise=1.0, **CLIP).sensitivity(META)
    assert newton == ("row", pytest.approx(CURVED_NORM + curved_error(100.0, 2, 6)))


SMALL = {"align": False, "rule": "absolute", "init": "small"}
PUBLISHED = {
    "DSANLS": {"sketch": "gaussian", "ratio": 0.1, "rule": "absolute", "schedule_start": 0.0, "growth": 1.0,
               "init": "unit"},
    "SynSD": {"schedule_start": 100.0, "growth": 10.0, **SMALL},
    "SynSSD": {"sketch": "uv", "ratio": 0.1, "schedule_start": 1.0, "growth": 0.1, **SMALL},
    "AsynSD": {"schedule_start": 100.0, "growth": 10.0, "server": "harmonic", "omega": 1.0, **SMALL},
    "AsynSSD": {"ratio": 0.1, "schedule_start": 1.0, "growth": 0.1, "server": "harmonic", "omega": 1.0, **SMALL},
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_settings_of_published_code(name):
    kind = getattr(algorithms, name)
    assert kind.published(4) == kind(4, **PUBLISHED[name])


def test_settings_of_papers_give_way_to_those_that_are_named():
    made = FNMF.paper(3)
    assert (made.local_solver, made.row_norm, made.pull_from, made.align_every) == ("printed", "free", 0, 1)
    assert (made.barycenter, made.synchronisation) == ("printed", "replace")
    assert FNMF.paper(3, pull_from=2).pull_from == 2
    assert algorithms.FELB.paper(3, kappa=0.5).kappa == 0.5
    assert FedSPLIT.as_printed(3, unrated="mean").unrated == "mean"
    assert algorithms.FedDMF.paper(hidden=5).hidden == 5
    assert algorithms.FedDMF.paper().n_components == 32


def test_depths_of_item_pairs_fall_along_their_order():
    """The first d items are paired with each other, and later ones with ever fewer of them."""
    for depth, m, fine in (
        ([2, 2, 1, 0], 4, True), ([2, 2, 1], 4, False), ([2, 1, 1, 0], 4, False), ([1, 2, 1, 0], 4, False),
        ([0, 0], 2, True), ([1, 0], 2, True), ([3, 3], 2, False), ([2, 2], 2, True), ([1, -1], 2, False), ([], 0, True),
    ):  # fmt: skip
        assert _falls(np.array(depth, np.int64), m) == fine
