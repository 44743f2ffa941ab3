"""What travels: announced, declared, of the right dtype, and never a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Algorithm, Domain, Round, Uplink, uplink_of
from fedfactor.core.errors import ProtocolError
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.pytree import freeze, is_numpy, leaves
from fedfactor.core.wire import check_message, receive, to_bytes
from fedfactor.engines.capabilities import SupportsGroups, client_groups
from fedfactor.testing.plain_loop import Trace, combine, differences, traces

Data = Mapping[str, Any] | None


def _sent(trace: Trace) -> list[tuple[str, Any]]:
    return [(name, tree) for name, tree in trace.everything if name.startswith(("upload", "download"))]


def check_announced_messages(algorithm: Algorithm, data: Data = None) -> None:
    """``messages()`` announces what is sent, type by type and leaf by leaf; ``accepts()`` refuses nothing of it."""
    for kind, (_, trace) in traces(algorithm, data).items():
        announced = algorithm.messages(trace.meta)
        for name, message in _sent(trace):
            try:
                check_message(message, announced)
                receive(to_bytes(message), announced)
            except ProtocolError as error:
                raise AssertionError(f"{name} on {kind} data is not what messages() announced: {error}") from error
            carried = {path for path, _ in leaves(message)}
            unsent = set(announced[type(message)]) - carried
            assert not unsent, f"{name} on {kind} data lacks {sorted(unsent)}, which messages() announces"
            odd = "" if uplink_of(message) else algorithm.accepts(message, trace.meta)
            assert not odd, f"{name} on {kind} data is honest, but accepts() says: {odd}"


def check_uplink(algorithm: Algorithm, data: Data = None) -> None:
    """Every upload class declares its uplink, and all clients send the same class in a round."""
    for kind, (_, trace) in traces(algorithm, data).items():
        announced = algorithm.messages(trace.meta)
        for index, ups in enumerate(trace.ups):
            types = {up.__class__ for up in ups.values()}
            assert len(types) == 1, f"round {index} on {kind} data mixes uploads: {sorted(t.__name__ for t in types)}"
            sent = types.pop()
            word = getattr(sent, "uplink", None)
            words = ("sum", "gather", "group")
            assert word in words, f"{sent.__name__} declares uplink={word!r}; it must be one of {', '.join(words)}"
            down = next(iter(trace.downs[index].values()))
            grouped = set(client_groups(algorithm, down, trace.meta)) == set(trace.meta.clients)
            assert grouped == (word == "group"), (
                f"{sent.__name__} declares uplink={word!r}, but groups() says otherwise"
            )
            assert sent in announced, f"{sent.__name__} is sent but not announced by messages()"


def check_groups_alone(algorithm: Algorithm, data: Data = None) -> None:
    """Where uploads are summed by group, the server's step with one client alone gives that client what all give it.

    Engines take the step wherever a group is: the state must not depend on which one.
    """
    if not isinstance(algorithm, SupportsGroups):
        return
    trace = traces(algorithm, data)["dense"][1]
    for index, ups in enumerate(trace.ups):
        if next(iter(ups.values())).uplink != Uplink.GROUP:
            continue
        for name, got in trace.downs[index + 1].items():
            total = combine(algorithm, ups, trace.downs[index][name], trace.meta)[name]
            at = Round(5, index, participants=trace.meta.clients)
            server, down = algorithm.server_step(trace.server[index], {name: total}, at)
            found = differences(trace.server[index + 1], freeze(server)) or differences(got, freeze(down.items[name]))
            assert not found, f"the step of {name!r} alone in round {index}: {found}"


def check_float32_stays(algorithm: Algorithm, data: Data = None) -> None:
    """Rows in float32 give messages, states and factors in float32; single numbers may be wider."""
    for kind, (_, trace) in traces(algorithm, data).items():
        if "float32" not in kind:
            continue
        for name, tree in trace.everything:
            for path, leaf in leaves(tree):
                wide = np.ndim(leaf) > 0 and np.asarray(leaf).dtype == np.float64
                assert not wide, f"{name} on {kind} data: leaf {path or 'value'} became float64"


def check_rows_stay_home(algorithm: Algorithm, data: Data = None) -> None:
    """No upload has a dimension that counts the client's rows, and none carries a row of X.

    What is summed by group is not asked: such nodes work on the same rows of one matrix.
    """
    for kind, (_, trace) in traces(algorithm).items():  # row counts are primes that no rank or width there shares
        for index, ups in enumerate(trace.ups):
            for name, up in ups.items():
                if uplink_of(up) == Uplink.GROUP:
                    continue
                shard = trace.shards[name]
                X = shard.X.toarray() if is_sparse(shard.X) else shard.X
                known = {row.tobytes() for row in X if row.any()} if algorithm.domain != Domain.BINARY else set[bytes]()
                for path, leaf in leaves(up):
                    array = np.asarray(leaf)
                    where = f"{type(up).__name__}.{path} of {name!r} in round {index} on {kind} data"
                    assert shard.n_rows not in array.shape, f"{where} has shape {array.shape}: one entry for each row"
                    if array.ndim == 2 and array.shape[1] == shard.n_features:
                        assert not any(row.tobytes() in known for row in array.astype(X.dtype)), (
                            f"{where} holds a row of X"
                        )


def check_factors(algorithm: Algorithm, data: Data = None) -> None:
    """Clients keep finite factors of fitting shapes, one row of U for each row of X; new rows can be folded in."""
    for kind, (_, trace) in traces(algorithm, data).items():
        for name, kept in trace.factors.items():
            shard = trace.shards[name]
            where = f"factors of {name!r} on {kind} data"
            assert kept.U.shape[0] == shard.n_rows, (
                f"{where}: U has {kept.U.shape[0]} rows for {shard.n_rows} rows of X"
            )
            assert kept.U.shape[1] == kept.V.shape[0], f"{where}: U is {kept.U.shape} but V is {kept.V.shape}"
            if kept.columns is None:
                assert kept.V.shape[1] == shard.n_features, f"{where}: V has {kept.V.shape[1]} columns"
            assert np.isfinite(kept.U).all() and np.isfinite(kept.V).all(), f"{where} are not finite"  # noqa: PT018
            score = trace.scores[name]
            assert np.isfinite(score.sse) and score.n > 0, f"{where}: score is {score}"  # noqa: PT018
            U = algorithm.fold_in(shard.X[:5], kept, shard.mask[:5] if is_numpy(shard.mask) else shard.mask)
            columns = kept.U.shape[1] + (0 if kept.V_private is None else kept.V_private.shape[0])
            assert U.shape == (5, columns), f"{where}: fold_in of five rows gives {U.shape}"
            assert np.isfinite(U).all(), f"{where}: fold_in is not finite"
