"""FNMF: clients factor their own rows, and components are aligned before they are averaged."""

from __future__ import annotations

from functools import reduce
from math import isfinite
from operator import add
from typing import Any, ClassVar, Literal

import numpy as np

from fedfactor.core.algorithm import Algorithm, LocalFactors, Meta, Round, Score
from fedfactor.core.client_data import Shard
from fedfactor.core.input_validation import check_rank
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.alignment.assignment import Method, is_partial, permutation, plan
from fedfactor.linalg.alignment.barycenter import Barycenter, barycenter, mean_start_barycenter
from fedfactor.linalg.alignment.drift import agreement, mean_similarity
from fedfactor.linalg.alignment.significance import Correction
from fedfactor.linalg.factors import RowNorm, fit_rows, odd_factor, reconstruction, refit_rows, rescale, stacked
from fedfactor.linalg.products import as_like, squared_norm, total
from fedfactor.nmf.fnmf.messages import Aligned, Local, Middle, Own, Server, lonely
from fedfactor.nmf.local_nmf import alternate

REFIT = 10
"""Sweeps over U after a synchronisation with a soft plan, which no reordering of U can follow."""


@declares_settings
class FNMF(Algorithm):
    r"""Coherent federated NMF: align components, then average them.

    .. math:: \min_{U_c, V_c \ge 0} \tfrac12 \|X_c - U_c V_c\|^2 + \gamma D(V_c, \bar V), \qquad
       D(V, W) = \min_P \tfrac12 \|V - P W\|^2

    at each client; the server finds the barycenter :math:`\bar V` of all :math:`V_c` under the same distance.

    Notes
    -----
    Differences from the paper; :meth:`paper` has none of them. Step lengths: ``1/‖VVᵀ‖₂`` for U and ``1/‖UᵀU‖₂``
    for V; the printed ones belong to the other block and diverge. Rows of the middle are divided by the mass that
    plans give them, not by the number of clients. U follows when V is reordered. Private components survive a
    synchronisation. No pull in the first round (see `pull_from`). A component of the middle that at most one client
    supports gives way to one that several have in common.

    Up and down per client and round: k m numbers (and k more). The barycenters at the server take each V_c in the
    clear; ``"client"`` is a sum.

    References
    ----------
    .. [1] S. Dalleiger, A. Gionis, "Creating coherence in federated non-negative matrix factorization", AAAI 2025.

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.random.default_rng(0).random((30, 6))
    >>> fedfactor.run(FNMF(2), {"a": X[:7], "b": X[7:]}, rounds=5, seed=0).V.shape
    (2, 6)
    """

    n_components: int = setting("Rank k, of each owner and of the middle.", at_least=1)
    alignment: Method = setting(
        "How components find their partners, see :func:`~fedfactor.linalg.alignment.assignment.plan`. With ``lap_rho`` "
        "and ``sinkhorn_rho`` only significantly correlated ones do: an owner keeps components that correlate with "
        "nothing the others have, and they never leave it. ``knn`` lets components collapse into each other: for study "
        "only.",
        default="lap",
    )
    barycenter: Barycenter | Literal["printed", "client"] = setting(
        'How the server finds the middle, seeing every upload; ``"printed"``: Algorithm 1 of the paper, from the plain '
        'mean and divided by the number of owners; or ``"client"``: each owner aligns its own factor with the last '
        "middle, and the server needs only sums.",
        default="fixed_point",
    )
    gamma: float = setting(
        "Pull of the last middle in each local step, relative: ``V ← (V + γ P V̄) / (1 + γ P1)``.",
        default=0.01,
        at_least=0,
    )
    scale_gamma: bool = setting(
        "Multiply gamma by the length of the step, as a proximal operator would.", default=False
    )
    pull_from: int = setting(
        "First round with a pull. In round 0 the middle is noise, so the default is 1; 0 is as in the paper.",
        default=1,
        at_least=0,
    )
    local_steps: int = setting("Alternations between two exchanges.", default=10, at_least=1)
    local_solver: Literal["gradient", "hals", "printed"] = setting(
        "Projected gradient steps as in the paper, or coordinate descent: faster on owners with many rows, but small "
        "or one-sided owners then run further away from each other between two exchanges. *printed*: gradient steps of "
        "the lengths that the paper prints, which diverge.",
        default="gradient",
    )
    inertia: float = setting(
        "Share of the last move that is added before a gradient step.", default=0.0, at_least=0, below=0.5
    )
    align_every: int = setting("Local steps between two plans for the pull.", default=10, at_least=1)
    significance: float = setting(
        "Level of the test of correlations (``*_rho``); lower it to leave more components to single owners. It is far "
        "below the usual 0.05, because every owner is tested: at 0.05 private components of some two of ten owners "
        "were alike by chance in four of ten planted sets, and were taken for a common one.",
        default=1e-3,
        above=0,
        below=1,
    )
    correction: Correction = setting(
        'Divide ``significance`` by the number of pairs of components, or (``"none"``) test each pair at that level.',
        default="bonferroni",
    )
    epsilon: float = setting("Softness of the transport (``sinkhorn*``).", default=0.05, above=0)
    neighbours: int = setting("Components taken by each (``knn``).", default=1, at_least=1)
    start: Literal["own", "common"] = setting("Each owner draws its first V, or all take the server's.", default="own")
    weights: Literal["equal", "rows"] = setting(
        "Owners count alike, as in the paper, or by their number of rows.", default="equal"
    )
    row_norm: RowNorm = setting(
        "Before V is sent its rows get norm 1; the norm of their column of U; or stay as they are, as in the paper. A "
        "component that an owner hardly uses can otherwise have any norm, and drown the others in distances and "
        "averages.",
        default="unit",
    )
    tol: float = setting(
        "Converged when the middle moves by less than this share of its norm in ``patience`` rounds in a row; 0 uses "
        "all rounds.",
        default=1e-4,
        at_least=0,
    )
    patience: int = setting(
        "Rounds in a row in which the middle must hardly move. With a small ``gamma`` it creeps: more rounds then keep "
        "a run from ending on a plateau.",
        default=3,
        at_least=1,
    )
    synchronisation: Literal["reorder", "replace"] = setting(
        "``reorder``: U follows when V is put into the order of the middle, and private components survive. "
        "``replace``, as printed: the first exchange averages random factors; then V becomes the middle, and U stays.",
        default="reorder",
    )
    diagnostics: bool = setting(
        "Report in each round how far owners have drifted from the middle they received, with and without alignment, "
        "how alike they are to it, and (barycenters at the server) how alike pairs of owners are.",
        default=False,
    )

    default_rounds: ClassVar[int] = 50
    handles_tensors: ClassVar[bool] = True

    @classmethod
    def paper(cls, n_components: int, **changes: Any) -> FNMF:
        """Return Algorithms 1 and 2 as printed; an independent implementation agrees to rounding.

        The printed step lengths diverge: cells grow without bound within a few steps. With
        ``local_solver="gradient"`` (each block's own Lipschitz constant, which the text names) they do not. Other
        readings of the print: ``scale_gamma=True`` (the proximal operator of step η, eq. 3); ``alignment="simplex"``
        (D₃ as defined) or ``"sinkhorn"`` (the algorithm that the text names); ``correction`` and ``significance`` (the
        z-test, whose level is not printed; 0.05 here).

        Examples
        --------
        >>> FNMF.paper(3).local_solver
        'printed'
        """
        literal: dict[str, Any] = {
            "local_solver": "printed",
            "row_norm": "free",
            "pull_from": 0,
            "align_every": 1,
            "barycenter": "printed",
            "synchronisation": "replace",
            "significance": 0.05,
            "correction": "none",
        }
        return cls(n_components, **{**literal, **changes})

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        check_rank(self.n_components, meta)
        if self.synchronisation == "replace" and self.barycenter == "client":
            raise ValueError(
                "synchronisation='replace' needs a barycenter of the random first factors, which barycenter='client' "
                "cannot give. Use barycenter='printed'."
            )
        if self.neighbours > self.n_components:
            raise ValueError(f"neighbours={self.neighbours} must not exceed n_components={self.n_components}.")
        if is_partial(self.alignment) and meta.n_features < 4:
            raise ValueError(
                f"alignment={self.alignment!r} tests correlations, which takes at least 4 features, but there are "
                f"{meta.n_features}. Use alignment='lap'."
            )

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """One middle down; one factor up, as it is or aligned."""
        wide = Leaf(meta.dtype, (self.n_components, meta.n_features))
        short = Leaf(meta.dtype, (self.n_components,))
        number = Leaf("float64", ())
        whole = Leaf("int64", ())
        watched = {"sse": number, "total": number}
        if self.diagnostics:
            watched["agreement"] = Leaf(meta.dtype, (3,))
        down: Spec = {"V": wide, "support": short, "mass": short, "clients": whole, "round": whole}
        if self.barycenter == "client":
            return {Middle: down, Aligned: {"V": wide, "mass": short, "support": short, **watched}}
        return {Middle: down, Own: {"V": wide, "weight": number, **watched}}

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Middle]:
        """Draw a first middle; it only gives the order of components, and the first V when clients take it."""
        V = at.shared_rng("V").random((self.n_components, meta.n_features)).astype(meta.dtype)
        support = np.zeros(self.n_components, meta.dtype)
        nothing = np.float64(np.nan)
        middle = Middle(V, support, support, np.int64(0), np.int64(-1))
        return Server(V, support, np.int64(0), nothing, nothing, np.full(4, np.nan, np.float32)), middle

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Draw U at the scale that lets U V have the mean of the data, V being uniform on [0, 1]; as printed, at 1."""
        k = self.n_components
        mean = total(shard.X) / max(1, shard.n_rows * shard.n_features)
        scale = 1.0 if self.synchronisation == "replace" else 4 * mean / k
        U = as_like(scale * at.rng("U").random((shard.n_rows, k)), shard.X)
        draw = at.rng("V") if self.start == "own" else at.shared_rng("V")
        V = as_like(draw.random((k, shard.n_features)).astype(meta.dtype), shard.X)
        return Local(U, V, np.float64(squared_norm(shard.X)), np.zeros(k, bool), None, None, np.int64(-1))

    def client_step(self, shard: Shard, state: Local, down: Middle, at: Round) -> tuple[Local, Own | Aligned]:
        """Take over the middle, alternate between U and V under its pull, and send V."""
        X = shard.X
        middle = as_like(down.V, shard.X)
        first = at.index == 0
        if first and self.synchronisation == "replace":
            return state, self._first_factor(shard, state)
        U, V, private = self._synchronise(X, state, middle, down, first)
        gamma = self.gamma if at.index >= self.pull_from else 0.0
        pull = self._pull(middle, gamma) if gamma else None
        U, V, sse = alternate(
            X,
            U,
            V,
            steps=self.local_steps,
            solver=self.local_solver,
            inertia=self.inertia,
            pull=pull,
            sq_norm=float(state.total),
        )
        U, V = rescale(U, V, self.row_norm)
        weight = self._weight(shard)
        watched: dict[str, Any] = {"sse": np.float64(sse), "total": state.total}
        if self.diagnostics:
            watched["agreement"] = as_like(np.array(agreement(V, middle)), X)
        now = np.int64(at.index)
        if self.barycenter != "client":
            return Local(U, V, state.total, private, None, None, now), Own(V, np.float64(weight), **watched)
        # Nothing correlates with a random first middle, so the first alignment leaves nothing alone.
        method = "lap" if first and is_partial(self.alignment) else self.alignment
        P = plan(V, self._others(state, middle, down), method, **self._options)
        mass = P.sum(1)
        up = Aligned(weight * (P @ V), weight * mass, mass, **watched)
        sent, sent_mass = (up.V, up.mass) if is_partial(self.alignment) else (None, None)
        return Local(U, V, state.total, private, sent, sent_mass, now), up

    def _weight(self, shard: Shard) -> float:
        return float(shard.n_rows) if self.weights == "rows" else 1.0

    def _first_factor(self, shard: Shard, state: Local) -> Own:
        """Send the random V, whose plain mean Algorithm 2 takes for the first middle."""
        sse = reconstruction(shard.X, state.U, state.V, None)[0]
        agreed = as_like(np.ones(3), shard.X) if self.diagnostics else None
        return Own(state.V, np.float64(self._weight(shard)), np.float64(sse), state.total, agreed)

    def accepts(self, down: Middle, meta: Meta) -> str:
        """Expect a V without negative cells."""
        return odd_factor(down.V)

    def server_step(self, state: Server, up: Any, at: Round) -> tuple[Server, Middle]:
        """Find the middle: a barycenter of the uploads, or their mean row by row."""
        if isinstance(up, Aligned):
            (V, support), mass = self._mean(state, up), up.mass
            watched = [up.sse, up.total, up.agreement]
            alike = np.nan
        else:
            ups = [up[name] for name in sorted(up)]
            V, support = self._barycenter(state, ups, at)
            mass = support
            leaves = ([one.sse for one in ups], [one.total for one in ups], [one.agreement for one in ups])
            watched = [None if each[0] is None else sum(each) for each in leaves]
            alike = np.nan if watched[2] is None else mean_similarity([one.V for one in ups], at.rng("pairs"))
        still = squared_norm(V - as_like(state.V, V)) <= self.tol**2 * squared_norm(V)
        sse, whole = (np.float64(np.nan if leaf is None else leaf) for leaf in watched[:2])
        n = len(at.participants)
        seen = np.full(3, np.nan) if watched[2] is None else as_like(watched[2], np.empty(0)) / n
        figures = np.append(seen, alike).astype(np.float32)
        flat = state.flat + 1 if still else np.int64(0)
        middle = Middle(V, support, mass, np.int64(n), np.int64(at.index))
        return Server(V, support, flat, sse, whole, figures), middle

    def _mean(self, state: Server, up: Aligned) -> tuple[Array, Array]:
        """Average row by row over those who had something to say; a row without contributions is unchanged."""
        some = as_like(up.mass > 0, up.V)
        rows = up.V / (up.mass + (1 - some))[:, None]
        return rows + (1 - some)[:, None] * as_like(state.V, up.V), up.support

    def _barycenter(self, state: Server, ups: list[Own], at: Round) -> tuple[Array, Array]:
        """Find the middle in the order of components of the last one, which in round 0 is noise and does not count."""
        if self.synchronisation == "replace" and at.index == 0:
            V = reduce(add, [one.V for one in ups]) / len(ups)
            return V, np.full(self.n_components, len(ups), V.dtype)
        if self.barycenter == "printed":
            V, plans = mean_start_barycenter([one.V for one in ups], self.alignment, **self._options)
            return V, sum(P.sum(1) for P in plans)
        V, _, support = barycenter(
            [one.V for one in ups],
            self.barycenter,
            self.alignment,
            weights=[float(one.weight) for one in ups],
            start=None if at.index == 0 else as_like(state.V, ups[0].V),
            **self._options,
        )
        return V, support

    def converged(self, state: Server) -> bool:
        """Return whether the middle stands still."""
        return self.tol > 0 and int(state.flat) >= self.patience

    def report(self, state: Server) -> dict[str, float]:
        """Return the relative error of the middle that clients received, and the drift when it is watched."""
        found = {"relative_error": float(np.sqrt(state.sse / state.total))} if float(state.total) > 0 else {}
        names = ("drift", "plain_drift", "server_similarity", "client_similarity")
        return found | {name: float(v) for name, v in zip(names, state.agreement, strict=True) if np.isfinite(v)}

    def finish(self, shard: Shard, state: Local, down: Middle) -> LocalFactors:
        """Solve U for the middle, and for the client's own components beside it."""
        X = shard.X
        middle = as_like(down.V, shard.X)
        U, V, private = self._synchronise(X, state, middle, down, first=False)
        if not is_partial(self.alignment) or self.synchronisation == "replace":
            return LocalFactors(refit_rows(U, X, middle), middle)
        backed = ~lonely(down)
        # V cannot be empty: when nothing is common, the best supported component stands for it.
        shared = np.flatnonzero(backed) if backed.any() else np.array([int(np.argmax(down.support))])
        own = np.flatnonzero(private)
        both = refit_rows(None, X, stacked(middle[shared], V[own]))
        k = len(shared)
        if not len(own):
            return LocalFactors(both, middle[shared])
        return LocalFactors(both[:, :k], middle[shared], None, V[own], both[:, k:])

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Solve U for new rows: of the shared components, and after them of the private ones when they are given."""
        return refit_rows(None, X, as_like(stacked(factors.V, factors.V_private), X), mask)

    def score(self, shard: Shard, state: Local | LocalFactors, down: Middle) -> Score:
        """Measure the error over all cells, private components included."""
        kept = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        U = kept.U if kept.U_private is None else stacked(kept.U.T, kept.U_private.T).T
        return Score.of(*reconstruction(shard.X, U, stacked(kept.V, kept.V_private), shard.mask))

    @property
    def _options(self) -> dict[str, Any]:
        return {
            "alpha": self.significance,
            "epsilon": self.epsilon,
            "neighbours": self.neighbours,
            "correction": self.correction,
        }

    def _synchronise(
        self, X: Array, state: Local, middle: Array, down: Middle, first: bool
    ) -> tuple[Array, Array, np.ndarray]:
        """Put the client's components into the order of the middle and take it over, but for the client's own ones."""
        none = np.zeros(self.n_components, bool)
        if int(state.sent_round) < 0:
            keeps_own = first or self.synchronisation == "replace"
            return state.U, as_like(state.V, X) if keeps_own else middle, none
        if self.synchronisation == "replace":
            return state.U, middle, none
        P = plan(state.V, self._others(state, middle, down), self.alignment, **self._options)
        if not isfinite(float(P.sum())):  # grown beyond all numbers, and so is what is sent, which the engine reports
            return state.U, state.V, none
        order = permutation(P)
        U = state.U[:, order]
        V = state.V[order]
        if self.alignment in ("sinkhorn", "knn", "simplex"):
            return fit_rows(U, X, middle, sweeps=REFIT), middle, none
        if self.alignment == "lap":
            return U, middle, none
        # A component that only this client supports is its own as much as one that found no partner.
        private = (as_like(P.sum(1), np.empty(0)) < 0.5) | lonely(down)
        keep = as_like(private, X)[:, None]
        return U, keep * V + (1 - keep) * middle, private

    def _others(self, state: Local, middle: Array, down: Middle) -> Array:
        """Return the middle without this client's share: a sum resembles each of its terms, common or not."""
        if state.sent is None or int(state.sent_round) != int(down.round):
            return middle
        assert state.sent_mass is not None  # kept together with what was sent
        mass = as_like(down.mass, middle)[:, None]
        left = mass - state.sent_mass[:, None]
        some = as_like(left > 1e-6 * mass, middle)
        rest = some * (mass * middle - state.sent) / (left + (1 - some))
        return rest * as_like(rest > 0, middle)

    def _pull(self, middle: Array, gamma: float) -> Any:
        held: dict[str, Array] = {}

        def pull(V: Array, step: int, length: float) -> Array:
            if step % self.align_every == 0:
                P = plan(middle, V, self.alignment, **self._options)
                mass = P.sum(1)[:, None]
                held["target"] = P @ middle
                held["mass"] = mass * 0 + 1 if self.synchronisation == "replace" else mass
            strength = gamma * length if self.scale_gamma else gamma
            return (V + strength * held["target"]) / (1 + strength * held["mass"])

        return pull
