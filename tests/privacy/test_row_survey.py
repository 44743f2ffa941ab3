"""What one row can change in the histogram that a private run pays for before it starts."""

from __future__ import annotations

import numpy as np

from fedfactor.core.federation import Federation
from fedfactor.privacy import row_survey as module


def histogram(X, monkeypatch):
    """The vector that one owner of these rows would send, without its noise."""
    sent = {}

    def record(vectors, *rest):
        sent.update(vectors)
        return next(iter(vectors.values()))

    monkeypatch.setattr(module, "noisy_sum", record)
    noise = module.Gaussian(1.0, 1.0, whole=False, share="local")
    module.row_survey(Federation({"all": X}), noise, None, b"run", None)
    return np.asarray(sent["all"], float)


def test_no_row_changes_the_histogram_by_more_than_is_paid_for(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.random((9, 4)) * 10.0 ** rng.integers(-3, 4, (9, 1))
    whole = histogram(X, monkeypatch)
    moved = [np.linalg.norm(whole - histogram(np.delete(X, i, 0), monkeypatch)) for i in range(len(X))]
    # Counted by hand: one in the number of rows, and one in a bin.
    assert max(moved) == np.sqrt(2)
    assert max(moved) <= module.SENSITIVITY * (1 + 1e-12)
