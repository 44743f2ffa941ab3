"""A check that never fails checks nothing: here is one faulty algorithm for each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from fedfactor import LocalEngine
from fedfactor.algorithms import FedAvgNMF, GridNMF, PooledNMF
from fedfactor.core.pytree import Array, public, record
from fedfactor.core.wire import Leaf
from fedfactor.testing import Flaky, Probe, algorithm_checks, check_algorithm, check_engine, engine_checks
from fedfactor.testing.probe_algorithm import Ask, Total


@record
class NoUplink:
    sums: Array


@record
class Rows:
    uplink: ClassVar = "sum"
    sums: Array
    U: Array = public()


class Honest(Probe):
    """Sums only, so that faults are easy to plant."""

    def server_step(self, state, up, at):
        V = (state.V + up.sums / (1 + len(at.participants))).astype(state.V.dtype)
        return replace(state, V=V), Ask(V)

    def step(self, shard, state, down, at):
        return Probe.client_step(self, shard, state, down, at)


class Unseeded(Honest):
    def client_step(self, shard, state, down, at):
        state, up = self.step(shard, state, down, at)
        return state, replace(up, sums=up.sums + np.random.default_rng().random())


class Writes(Honest):
    def client_step(self, shard, state, down, at):
        down.V[0, 0] = 0
        return self.step(shard, state, down, at)


CALLS = []


class Remembers(Honest):
    def client_step(self, shard, state, down, at):
        CALLS.append(at)
        state, up = self.step(shard, state, down, at)
        return state, replace(up, sums=up.sums * len(CALLS))


class NoArrays(Honest):
    def init_client(self, shard, meta, at):
        return [Probe.init_client(self, shard, meta, at).moments.mean]

    def client_step(self, shard, state, down, at):
        return state, Total((state[0] * shard.n_rows).astype(shard.X.dtype), np.float64(0))


class Unannounced(Honest):
    def messages(self, meta):
        return {**Probe.messages(self, meta), Total: {"sums": Leaf("float64", (1,)), "loss": Leaf("float64", ())}}


class Undeclared(Honest):
    def messages(self, meta):
        return {**Probe.messages(self, meta), NoUplink: {"sums": Leaf(meta.dtype, (meta.n_features,))}}

    def client_step(self, shard, state, down, at):
        state, up = self.step(shard, state, down, at)
        return state, NoUplink(up.sums)


class Widens(Honest):
    def init_client(self, shard, meta, at):
        memory = Probe.init_client(self, shard, meta, at)
        return replace(memory, weights={"a.b": np.ones((2, 3))})


class SendsU(Honest):
    def client_step(self, shard, state, down, at):
        state, up = self.step(shard, state, down, at)
        return state, Rows(up.sums, np.asarray(shard.X @ down.V.T))


class SendsARow(Honest):
    def client_step(self, shard, state, down, at):
        state, up = self.step(shard, state, down, at)
        row = shard.X[[0]]
        return state, Rows(up.sums, row.toarray() if hasattr(row, "toarray") else row)


class LosesRows(Honest):
    def finish(self, shard, state, down):
        kept = Probe.finish(self, shard, state, down)
        return replace(kept, U=kept.U[1:])


class FirstWins(Honest):
    def server_step(self, state, up, at):
        FirstWins.seen += 1
        V = (state.V + up.sums * (FirstWins.seen % 7)).astype(state.V.dtype)
        return replace(state, V=V), Ask(V)


FirstWins.seen = 0


class Divides(Honest):
    def client_step(self, shard, state, down, at):
        state, up = self.step(shard, state, down, at)
        with np.errstate(all="ignore"):
            mean = np.asarray(shard.X.sum(axis=0)).ravel() / np.float64(shard.n_rows)
        return state, replace(up, sums=mean.astype(shard.X.dtype))


class HatesZeros(Honest):
    def finish(self, shard, state, down):
        kept = Probe.finish(self, shard, state, down)
        with np.errstate(all="ignore"):
            return replace(kept, U=kept.U / np.asarray(shard.X.sum()).astype(kept.U.dtype))


class NeedsTwoRows(Honest):
    def finish(self, shard, state, down):
        kept = Probe.finish(self, shard, state, down)
        with np.errstate(all="ignore"):
            return replace(kept, U=kept.U / np.asarray(shard.n_rows - 1.0, dtype=kept.U.dtype))


class NeedsAll(Honest):
    def server_step(self, state, up, at):
        state, down = Honest.server_step(self, state, up, at)
        scale = 1.0 if len(at.participants) == 3 else 1e200
        with np.errstate(over="ignore"):
            return replace(state, V=state.V * scale), replace(down, V=down.V * scale)


class CountsClients(GridNMF):
    """Lets the server's state depend on how many clients' groups it is handed, which engines choose."""

    def server_step(self, state, up, at):
        state, down = GridNMF.server_step(self, state, up, at)
        return replace(state, flat=np.int64(len(up))), down


FAULTS = {
    "check_same_seed_same_bits": Unseeded(),
    "check_inputs_untouched": Writes(),
    "check_pure_functions": Remembers(),
    "check_state_through_bytes": FirstWins(),
    "check_bytes_round_trip": NoArrays(),
    "check_resume": Remembers(),
    "check_announced_messages": Unannounced(),
    "check_uplink": Undeclared(),
    "check_groups_alone": CountsClients(3),
    "check_float32_stays": Widens(),
    "check_rows_stay_home": SendsU(),
    "check_factors": LosesRows(),
    "check_client_order": FirstWins(),
    "check_mapping_order": FirstWins(),
    "check_streams_by_name": Remembers(),
    "check_empty_shard": Divides(),
    "check_one_row": NeedsTwoRows(),
    "check_all_zero": HatesZeros(),
    "check_drop_outs": NeedsAll(),
    "check_partial_participation": NeedsAll(),
}
CHECKS = {str(check): check for check in algorithm_checks(PooledNMF(2), pooled=True)}


def test_every_check_has_its_fault():
    assert set(FAULTS) | {"check_pooled"} == set(CHECKS)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("name", FAULTS)
def test_the_check_finds_the_fault(name):
    with pytest.raises((AssertionError, ValueError, TypeError)):
        replace(CHECKS[name], algorithm=FAULTS[name])()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_without_the_fault_the_check_passes(name):
    replace(CHECKS[name], algorithm=Honest())()


def test_a_row_in_an_upload_is_found():
    with pytest.raises(AssertionError, match="holds a row of X"):
        replace(CHECKS["check_rows_stay_home"], algorithm=SendsARow())()


def test_averages_do_not_pass_for_pooled():
    with pytest.raises(AssertionError, match="differs from pooled rows"):
        replace(CHECKS["check_pooled"], algorithm=FedAvgNMF(2))()


def test_a_class_may_claim_it_itself():
    class Claims(Flaky):
        pooled = True

    assert "check_pooled" in [str(check) for check in algorithm_checks(Claims(PooledNMF(2), ()))]
    assert "check_pooled" not in [str(check) for check in algorithm_checks(FedAvgNMF(2))]


def test_the_report_names_algorithm_and_check():
    with pytest.raises(AssertionError, match="Unseeded fails check_same_seed_same_bits"):
        check_algorithm(Unseeded())


@dataclass
class Wrong:
    """An engine that is right but for one thing."""

    fault: str

    def run(self, algorithm, federation, **options):
        if self.fault == "seed":
            options["seed"] += 1
        if self.fault == "callbacks":
            options["callbacks"] = ()
        if self.fault == "participation":
            options["participation"] = 1.0
        if self.fault == "patience":
            algorithm = replace(algorithm, tol=0.0) if hasattr(algorithm, "tol") else algorithm
        if self.fault == "absence" and hasattr(algorithm, "absent"):
            algorithm = replace(algorithm, absent=())
        if self.fault == "refusal" and getattr(algorithm, "n_components", 0) > 13:
            algorithm = replace(algorithm, n_components=1)
        return LocalEngine().run(algorithm, federation, **options)


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("seed", "check_engine_equals_local"),
        ("seed", "check_engine_groups"),
        ("participation", "check_engine_participation"),
        ("absence", "check_engine_drop_outs"),
        ("callbacks", "check_engine_callbacks"),
        ("callbacks", "check_engine_stop"),
        ("patience", "check_engine_converged"),
        ("refusal", "check_engine_error"),
    ],
)
def test_engine_checks_find_faults(fault, check):
    checks = {function.__name__: function for function in engine_checks()}
    with pytest.raises(AssertionError):
        checks[check](lambda: Wrong(fault), 0.0)


@pytest.mark.slow
def test_a_right_engine_behind_another_face_passes():
    check_engine(lambda: Wrong("none"))


@pytest.mark.slow
def test_a_tolerance_is_honoured():
    checks = {function.__name__: function for function in engine_checks()}
    checks["check_engine_participation"](LocalEngine, 1e-12)
    with pytest.raises(AssertionError, match="apart"):
        checks["check_engine_equals_local"](lambda: Wrong("seed"), 1e-6)
