"""Training of the networks of FedDMF: the one file that imports torch, and only when something is trained."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfactor.core.errors import MissingExtraError
from fedfactor.core.pytree import Array
from fedfactor.recommend.feddmf import network as dmf
from fedfactor.recommend.feddmf.messages import DeepFactors, Local

if TYPE_CHECKING:
    from fedfactor.recommend.feddmf.algorithm import FedDMF

_BETAS = (0.9, 0.999)
_TINY = 1e-8
_WORTH_RECORDING = 50  # steps on a GPU from which on it pays to record one and replay it
_FOLD_STEPS = 100
_FOLD_RATE = 0.1
_FOLD_CELLS = 1 << 22


def torch_module() -> Any:
    """Return torch, or raise with the command that installs it."""
    try:
        import torch
    except ImportError:
        raise MissingExtraError.named("torch", "deep", "FedDMF") from None
    return torch


def check_device(device: str) -> None:
    """Refuse a device that is not there, before any work."""
    torch = torch_module()
    try:
        torch.zeros(1, device=device).sum()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"device={device!r} cannot be used here: {str(error).splitlines()[0]} Use 'cpu'.") from None


Cells = tuple[Array, ...]
Aligned = tuple[Array, Array] | None

_lock = threading.Lock()
_inside = [0, 1]
_gpu = threading.Lock()  # while one client's step is recorded, no other thread may touch the GPU


@contextmanager
def _one_thread() -> Generator[None]:
    """Let torch use one CPU thread while any client computes: more would change bits."""
    torch = torch_module()
    with _lock:
        if not _inside[0]:
            _inside[1] = torch.get_num_threads()
        torch.set_num_threads(1)  # set by every thread for itself: OpenMP keeps one number per thread
        _inside[0] += 1
    try:
        yield
    finally:
        with _lock:
            _inside[0] -= 1
            if not _inside[0]:
                torch.set_num_threads(_inside[1])


def train(
    settings: FedDMF, state: Local, cells: Cells, aligned: Aligned, swap: float, fixed: tuple[str, ...], seed: int
) -> Local:
    """Pass over the cells in batches with Adam; new arrays come back, the old ones stay as they were."""
    torch = torch_module()
    on_gpu = settings.device.startswith("cuda")
    with _one_thread(), _gpu if on_gpu else nullcontext():
        step = _Step(settings, state, aligned, swap, fixed, seed)
        rows, items, y = (torch.tensor(part, device=settings.device) for part in cells)
        batches = list(zip(*(part.split(settings.batch_size) for part in (rows, items, y.to(step.kind))), strict=True))
        if on_gpu and len(batches) > _WORTH_RECORDING and hasattr(torch.cuda.CUDAGraph, "register_generator_state"):
            batches = step.replay(batches)
        for batch in batches:
            step(*batch)
        return step.result(state)


class _Step:
    """One step of Adam on one batch, over tensors that belong to this pass alone."""

    def __init__(
        self, settings: FedDMF, state: Local, aligned: Aligned, swap: float, fixed: tuple[str, ...], seed: int
    ) -> None:
        torch = self.torch = torch_module()
        self.settings = settings
        self.swap = swap
        where = {"device": settings.device}
        trees = (state.weights, state.first, state.second)
        self.weights, self.first, self.second = (
            {name: torch.tensor(value, **where) for name, value in tree.items()} for tree in trees
        )
        self.kind = self.weights["P"].dtype
        self.steps = torch.tensor(float(state.steps), dtype=torch.float64, **where)
        self.names = [name for name in self.weights if name not in fixed]
        for name in self.names:
            self.weights[name].requires_grad_(True)
        self.rng = torch.Generator(settings.device).manual_seed(seed)
        self.aligned = None
        if aligned is not None:
            place, z = (torch.tensor(part, **where) for part in aligned)
            found = torch.full((len(state.weights["Q"]),), -1, dtype=torch.long, **where)
            found[place] = torch.arange(len(place), **where)
            self.aligned = (place, z, found)

    def __call__(self, rows: Any, items: Any, y: Any) -> None:
        loss = self._loss(rows, items, y)
        gradients = self.torch.autograd.grad(loss, [self.weights[name] for name in self.names])
        with self.torch.no_grad():
            self.steps += 1
            s = self.settings
            for name, g in zip(self.names, gradients, strict=True):
                if s.weight_decay and name in ("P", "Q"):
                    self.weights[name].mul_(1 - s.learning_rate * s.weight_decay)
                moments = self.first[name], self.second[name]
                _adam(self.weights[name], g, *moments, self.steps, s.learning_rate)

    def _loss(self, rows: Any, items: Any, y: Any) -> Any:
        torch = self.torch
        w = self.weights
        s = self.settings
        a = _rows_of(dmf.user_part, w, w["P"], rows)
        b = _rows_of(dmf.item_part, w, w["Q"], items)
        if self.aligned is not None and self.swap > 0:
            _, z, where = self.aligned
            at = where[items]
            foreign = (at >= 0) & (self._uniform(len(items)) < self.swap)
            b = torch.where(foreign[:, None], _rows_of(dmf.item_part, w, z, at.clamp(min=0)), b)
        keep = None
        if s.dropout > 0:
            keep = (self._uniform(len(y), s.hidden) >= s.dropout) / (1 - s.dropout)
        loss = ((torch.sigmoid(dmf.pair_logits(w, a, b, keep)) - y) ** 2).mean()
        if self.aligned is not None and s.beta > 0 and "Q" in self.names:
            place, z, _ = self.aligned
            if s.pairs is not None:
                some = torch.randint(len(place), (s.pairs,), generator=self.rng, device=place.device)
                place = place[some]
                z = z[some]
            apart = 1 - torch.nn.functional.cosine_similarity(w["Q"][place], z, dim=1)
            loss = loss + s.beta * apart.clamp(min=s.margin).mean()  # eq. 4
        return loss

    def _uniform(self, *shape: int) -> Any:
        return self.torch.rand(shape, generator=self.rng, dtype=self.kind, device=self.weights["P"].device)

    def replay(self, batches: list[Cells]) -> list[Cells]:
        """Record one step on the GPU and play it for every whole batch; return the batches that are left.

        A small batch keeps a GPU busy for microseconds, and launching its many small kernels one by one takes a hundred
        times as long.
        """
        torch = self.torch
        size = self.settings.batch_size
        for batch in batches[:3]:  # recording wants a warm start; these are ordinary steps
            self(*batch)
        inputs = [part.clone() for part in batches[3]]
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.rng)
        with torch.cuda.graph(graph):  # records, and does nothing yet
            self(*inputs)
        rest = [batch for batch in batches[3:] if len(batch[0]) < size]
        for batch in batches[3:]:
            if len(batch[0]) == size:
                for place, part in zip(inputs, batch, strict=True):
                    place.copy_(part)
                graph.replay()
        torch.cuda.synchronize()
        return rest

    def result(self, state: Local) -> Local:
        """Take the arrays home."""
        weights, first, second = (
            {name: value.detach().cpu().numpy() for name, value in tree.items()}
            for tree in (self.weights, self.first, self.second)
        )
        return replace(state, weights=weights, first=first, second=second, steps=np.int64(int(self.steps)))


def _adam(w: Any, g: Any, first: Any, second: Any, steps: Any, rate: float) -> None:
    b1, b2 = _BETAS
    first.mul_(b1).add_(g, alpha=1 - b1)
    second.mul_(b2).addcmul_(g, g, value=1 - b2)
    scale = (rate / (1 - b1**steps)).to(w.dtype)
    size = (1 / (1 - b2**steps)).to(w.dtype)
    w.sub_(scale * first / ((second * size).sqrt_().add_(_TINY)))


def _rows_of(part: Any, weights: dict[str, Any], table: Any, rows: Any) -> Any:
    """Put rows through a tower: each once where the batch is larger than the table, else only those of the batch."""
    return part(weights, table)[rows] if len(rows) > len(table) else part(weights, table[rows])


def fold_in(settings: FedDMF, X: Any, factors: DeepFactors) -> np.ndarray:
    """Find vectors of new users; zeros weigh as much in all as the zeros that training would draw."""
    torch = torch_module()
    assert factors.known is not None
    assert factors.network is not None
    known = np.flatnonzero(factors.known)
    kind = factors.V.dtype
    with _one_thread():
        net = {name: torch.tensor(value) for name, value in factors.network.items()}
        b = dmf.item_part(net, torch.tensor(np.ascontiguousarray(factors.V[:, known].T)))
        mean = factors.U.mean(axis=0) if len(factors.U) else np.zeros(factors.V.shape[0])
        out = np.tile(mean.astype(kind), (X.shape[0], 1))
        size = max(1, _FOLD_CELLS // max(1, b.numel()))
        for start in range(0, X.shape[0], size):
            block = X[start : start + size]
            y = torch.tensor(
                (block.toarray() if hasattr(block, "toarray") else np.asarray(block))[:, known].astype(kind)
            )
            out[start : start + size] = _fit_users(
                net, b, y, torch.tensor(out[start : start + size]), settings.negatives
            )
    return out


def _fit_users(net: dict[str, Any], b: Any, y: Any, P: Any, negatives: int | None) -> np.ndarray:
    torch = torch_module()
    ones = y.sum(1, keepdim=True)
    zeros = (y.shape[1] - ones).clamp(min=1)
    drawn = zeros if negatives is None else negatives * ones.clamp(min=1)
    weight = torch.where(y > 0, torch.ones_like(y), (drawn / zeros).clamp(max=1.0).to(y.dtype))
    first = torch.zeros_like(P)
    second = torch.zeros_like(P)
    steps = torch.zeros((), dtype=torch.float64)
    P.requires_grad_(True)
    for _ in range(_FOLD_STEPS):
        logits = dmf.pair_logits(net, dmf.user_part(net, P)[:, None, :], b[None])
        loss = ((weight * (torch.sigmoid(logits) - y) ** 2).sum(1) / weight.sum(1)).sum()
        (g,) = torch.autograd.grad(loss, [P])
        with torch.no_grad():
            steps += 1
            _adam(P, g, first, second, steps, _FOLD_RATE)
    return P.detach().numpy()
