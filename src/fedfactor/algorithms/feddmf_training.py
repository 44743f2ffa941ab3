"""Training of the networks of FedDMF: the one file that imports torch, and only when something is trained."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfactor.algorithms.feddmf_messages import DeepFactors, Local
from fedfactor.core.errors import MissingExtraError
from fedfactor.kernels import dmf

if TYPE_CHECKING:
    from fedfactor.algorithms.feddmf import FedDMF

_BETAS, _TINY = (0.9, 0.999), 1e-8
_SUBSET = 256  # common items that the alignment loss looks at in one step


def torch_module() -> Any:
    """Return torch, or say how to get it."""
    try:
        import torch
    except ImportError:
        raise MissingExtraError.named("torch", "deep", "FedDMF") from None
    return torch


_lock, _inside = threading.Lock(), [0, 1]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one CPU thread while any client computes: more would change bits."""
    torch = torch_module()
    with _lock:
        if not _inside[0]:
            _inside[1] = torch.get_num_threads()
            torch.set_num_threads(1)
        _inside[0] += 1
    try:
        yield
    finally:
        with _lock:
            _inside[0] -= 1
            if not _inside[0]:
                torch.set_num_threads(_inside[1])


def train(
    settings: FedDMF, state: Local, cells: tuple, aligned: tuple | None, swap: float, fixed: tuple, seed: int
) -> Local:
    """Pass over the cells in batches with Adam; new arrays come back, the old ones stay as they were."""
    torch = torch_module()
    with _one_thread():
        step = _Step(settings, state, aligned, swap, fixed, seed)
        rows, items, y = (torch.tensor(part, device=settings.device) for part in cells)
        y = y.to(step.weights["P"].dtype)
        for start in range(0, len(y), settings.batch_size):
            batch = slice(start, start + settings.batch_size)
            step(rows[batch], items[batch], y[batch])
        return step.result(state)


class _Step:
    """One step of Adam on one batch, over tensors that belong to this pass alone."""

    def __init__(
        self, settings: FedDMF, state: Local, aligned: tuple | None, swap: float, fixed: tuple, seed: int
    ) -> None:
        torch = self.torch = torch_module()
        self.settings, self.swap, self.fixed, self.n = settings, swap, fixed, int(state.steps)
        trees = (state.weights, state.first, state.second)
        self.weights, self.first, self.second = (
            {name: torch.tensor(value, device=settings.device) for name, value in tree.items()} for tree in trees
        )
        self.names = [name for name in self.weights if name not in fixed]
        self.rng = torch.Generator(settings.device).manual_seed(seed)
        self.aligned = None
        if aligned is not None:
            like = self.weights["Q"]
            place, z = (torch.tensor(part, device=settings.device) for part in aligned)
            where = torch.full((len(like),), -1, dtype=torch.long, device=like.device)
            where[place] = torch.arange(len(place), device=like.device)
            self.aligned = (place, z, where)

    def __call__(self, rows: Any, items: Any, y: Any) -> None:
        torch = self.torch
        for name in self.names:
            self.weights[name].requires_grad_(True)
        loss = self._loss(rows, items, y)
        found = torch.autograd.grad(loss, [self.weights[name] for name in self.names])
        for name in self.names:
            self.weights[name].requires_grad_(False)
        self._adam(dict(zip(self.names, found, strict=True)))

    def _loss(self, rows: Any, items: Any, y: Any) -> Any:
        torch, w, s = self.torch, self.weights, self.settings
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
            some = torch.randint(len(place), (_SUBSET,), generator=self.rng, device=place.device)
            apart = 1 - torch.nn.functional.cosine_similarity(w["Q"][place[some]], z[some], dim=1)
            loss = loss + s.beta * apart.clamp(min=s.margin).mean()  # eq. 4
        return loss

    def _uniform(self, *shape: int) -> Any:
        like = self.weights["P"]
        return self.torch.rand(shape, generator=self.rng, dtype=like.dtype, device=like.device)

    def _adam(self, gradient: dict[str, Any]) -> None:
        self.n += 1
        (b1, b2), rate = _BETAS, self.settings.learning_rate
        for name, g in gradient.items():
            m, v, w = self.first[name], self.second[name], self.weights[name]
            m.mul_(b1).add_(g, alpha=1 - b1)
            v.mul_(b2).addcmul_(g, g, value=1 - b2)
            if self.settings.weight_decay and name in ("P", "Q"):
                w.mul_(1 - rate * self.settings.weight_decay)
            w.addcdiv_(m, (v / (1 - b2**self.n)).sqrt_().add_(_TINY), value=-rate / (1 - b1**self.n))

    def result(self, state: Local) -> Local:
        weights, first, second = (
            {name: value.cpu().numpy() for name, value in tree.items()}
            for tree in (self.weights, self.first, self.second)
        )
        return replace(state, weights=weights, first=first, second=second, steps=np.int64(self.n))


def _rows_of(part: Any, weights: dict[str, Any], table: Any, rows: Any) -> Any:
    """Put rows through a tower: each once where the batch is larger than the table, else only those of the batch."""
    return part(weights, table)[rows] if len(rows) > len(table) else part(weights, table[rows])


def fold_in(settings: FedDMF, X: Any, factors: DeepFactors, n_steps: int = 200, rate: float = 0.05) -> np.ndarray:
    """Zeros weigh as much in all as the zeros that training would draw."""
    torch = torch_module()
    known = np.flatnonzero(factors.known)
    kind = factors.V.dtype
    with _one_thread():
        net = {name: torch.tensor(value) for name, value in factors.network.items()}
        b = dmf.item_part(net, torch.tensor(np.ascontiguousarray(factors.V[:, known].T)))
        mean = factors.U.mean(axis=0) if len(factors.U) else np.zeros(factors.V.shape[0], kind)
        out = np.tile(mean.astype(kind), (X.shape[0], 1))
        size = max(1, (1 << 22) // max(1, b.numel()))
        for start in range(0, X.shape[0], size):
            block = X[start : start + size]
            y = torch.tensor(np.asarray(block.toarray() if hasattr(block, "toarray") else block)[:, known].astype(kind))
            ones = y.sum(1, keepdim=True)
            zeros = (len(known) - ones).clamp(min=1)
            ratio = zeros if settings.negatives is None else settings.negatives * ones.clamp(min=1)
            weight = torch.where(y > 0, 1.0, (ratio / zeros).clamp(max=1.0)).to(y.dtype)
            P = torch.tensor(out[start : start + size], requires_grad=True)
            adam = torch.optim.Adam([P], lr=rate)
            for _ in range(n_steps):
                adam.zero_grad()
                logits = dmf.pair_logits(net, dmf.user_part(net, P)[:, None, :], b[None])
                ((weight * (torch.sigmoid(logits) - y) ** 2).sum(1) / weight.sum(1)).sum().backward()
                adam.step()
            out[start : start + size] = P.detach().numpy()
    return out
