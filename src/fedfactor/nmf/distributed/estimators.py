"""Factorizations of one matrix by the nodes of a cluster, or by parties that hold parts of it."""

from __future__ import annotations

from fedfactor import algorithms
from fedfactor.estimators.base import FederatedTransformer
from fedfactor.estimators.columns import GridFace, SecureFace
from fedfactor.estimators.signatures import face


@face(algorithms.DSANLS)
class DSANLS(GridFace):
    """Distributed NMF for speed, by sketches of the factors.

    X is cut into blocks of rows and of columns for ``n_clients`` nodes of one cluster: nobody keeps anything to
    itself.
    """

    _how = 'n_components=3, ratio=0.5, n_clients=2, leak="ignore", random_state=0'


@face(algorithms.DistributedNMF)
class DistributedNMF(FederatedTransformer):
    """Plain distributed NMF over blocks of rows, the rival of :class:`DSANLS`; use :class:`PooledNMF`."""


@face(algorithms.GridNMF)
class GridNMF(GridFace):
    """NMF of one matrix in blocks on a grid of ``n_clients`` nodes, of which none has all rows or all columns.

    Of the grids with so many nodes the one that sends least is taken; to choose, pass a Federation of
    ``fedfactor.core.grid.block_federation`` or ``fedfactor.data.open_blocks``.
    """

    _how = "n_components=3, n_clients=6, random_state=0"


@face(algorithms.SynSD)
class SynSD(SecureFace):
    """NMF of parties that take local steps and average the common factor."""


@face(algorithms.SynSSD)
class SynSSD(SecureFace):
    """Syn-SD with sketches of what travels or of what is looked at."""


@face(algorithms.AsynSD)
class AsynSD(SecureFace):
    """NMF of parties that never wait for each other.

    On ``engine="local"`` all parties come to every round, so that nobody is ahead of anybody;
    :class:`~fedfactor.engines.local.virtual_clock.VirtualEngine` and ``"mpi"`` let each come when it is done.
    """


@face(algorithms.AsynSSD)
class AsynSSD(SecureFace):
    """Asyn-SD whose parties look at a part of their rows in each step; see :class:`AsynSD` for who waits."""
