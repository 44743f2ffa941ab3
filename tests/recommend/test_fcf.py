"""FCF's server takes Adam's steps as its paper prints them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedfactor.algorithms import FCF
from fedfactor.core.algorithm import Meta, Round
from fedfactor.recommend.fcf import Gradient


def test_steps_are_those_of_adam_with_both_means_corrected():
    method = FCF(2, lam=0.5, learning_rate=0.1)
    state, _ = method.init_server(Meta(4, ("a",)), Round(0, 0))
    rng = np.random.default_rng(0)
    V, mean, square = np.array(state.V, float), np.zeros((2, 4)), np.zeros((2, 4))
    state = replace(state, V=V)
    for step in range(1, 5):
        F = rng.normal(size=(2, 4))
        state, _ = method.server_step(state, Gradient(F, np.float64(0.0)), Round(0, step))
        slope = 0.5 * V - F
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        V = V - 0.1 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        assert np.allclose(state.V, V, rtol=1e-10)
