"""Rounds of PooledNMF on a CUDA card, against the time that reading the rows twice takes on the same card.

Run ``python -m benchmarks.gpu`` (four minutes on a large card); ``--rows`` and ``--columns`` for smaller ones.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import fedfactor
from fedfactor.algorithms import PooledBMF, PooledNMF
from fedfactor.core.client_data import Federation
from fedfactor.linalg.cuda.device_rows import move


def read_seconds(X: Any) -> float:
    """Return the least time in which the card reads X once."""
    import torch

    flat = X.view(torch.int32) if X.dtype == torch.float32 else X.view(torch.int16)
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        flat.view(-1)[: flat.numel() // 2].clone()  # half is read and half is written
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return min(times)


def rows(n: int, m: int, k: int) -> Any:
    """Make rows of k components with one-sided noise of a tenth of the mean."""
    import torch

    rng = torch.Generator(device="cuda").manual_seed(0)
    X = torch.rand(n, k, device="cuda", generator=rng) ** 4 @ torch.rand(k, m, device="cuda", generator=rng) ** 4
    X += 0.1 * X.mean() * torch.rand(n, m, device="cuda", generator=rng)
    return X


def split(X: Any, owners: int, k: int, storage: str) -> Federation:
    """Give owners their rows as a run with ``device="cuda"`` would store them."""
    step = -(-X.shape[0] // owners)
    parts = {f"owner {i:02}": X[i * step : (i + 1) * step] for i in range(owners)}
    return move(Federation(parts), PooledNMF(k), "cuda", storage)


def measure(parts: Federation, k: int, exact: Any, rounds: int = 40) -> dict[str, Any]:
    """Time rounds after the first few, and compare the account of the error with the residual of the single rows."""
    import torch

    step = parts.shard(parts.names[0]).n_rows
    run = fedfactor.run(PooledNMF(k, tol=0), parts, rounds=rounds, seed=0)
    run = fedfactor.run(PooledNMF(k, tol=0), parts, rounds=rounds, seed=0)
    sse = whole = 0.0
    for i, name in enumerate(parts.names):
        U = run.factors[name].U
        for a in range(0, U.shape[0], 5000):
            block = exact[i * step + a : i * step + a + 5000][: U.shape[0] - a].double()
            sse += float(((block - U[a : a + 5000].double() @ run.V.double()) ** 2).sum())
            whole += float((block**2).sum())
    times = [record.seconds for record in run.history[5:]]
    longer = fedfactor.run(PooledNMF(k, tol=0), parts, rounds=3 * rounds, seed=0)
    torch.cuda.synchronize()
    return {
        "ms_a_round": 1e3 * statistics.median(times), "least_ms": 1e3 * min(times),
        "first_two_ms": 1e3 * sum(record.seconds for record in run.history[:2]),
        "account": run.history[-1].metrics["relative_error"], "error": (sse / whole) ** 0.5,
        "error_in_the_end": longer.relative_error,
    }  # fmt: skip


def sparse(n: int, m: int, stored: int, k: int) -> dict[str, Any]:
    """Time rounds of sparse rows."""
    import torch

    rng = torch.Generator(device="cuda").manual_seed(0)
    each = stored // n
    columns = torch.sort(torch.randint(m, (n, each), device="cuda", generator=rng), dim=1).values.reshape(-1)
    starts = torch.arange(n + 1, device="cuda") * each
    values = torch.rand(n * each, device="cuda", generator=rng)
    X = torch.sparse_csr_tensor(starts, columns.to(torch.int64), values, (n, m))
    run = fedfactor.run(PooledNMF(k, tol=0), {"all": X}, rounds=30, seed=0)
    return {"ms_a_round": 1e3 * statistics.median(record.seconds for record in run.history[5:])}


def boolean(n: int, m: int, k: int) -> dict[str, Any]:
    """Time the search for Boolean components of two owners on the card and on the processor beside it."""
    import torch

    rng = torch.Generator(device="cuda").manual_seed(0)
    U, V = (torch.rand(shape, device="cuda", generator=rng) < 0.1 for shape in ((n, k), (k, m)))
    X = (((U.half() @ V.half()) > 0) ^ (torch.rand(n, m, device="cuda", generator=rng) < 0.01)).float()
    found: dict[str, Any] = {}
    for place, data in (("card", X), ("processor", X.cpu().numpy())):
        for _ in range(2):  # the first time kernels are compiled
            began = time.perf_counter()
            run = fedfactor.run(PooledBMF(k), {"a": data[: n // 2], "b": data[n // 2 :]}, seed=0)
            found[f"{place}_s"] = time.perf_counter() - began
        found[f"{place}_wrong_cells"] = run.score.sse
    return found


def losses(n: int, m: int, k: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Time rounds of other losses than the squared error, complete and with missing cells, and of sparse counts."""
    import torch

    X = rows(n, m, k)
    X *= 3 / X.mean()
    rng = torch.Generator(device="cuda").manual_seed(1)
    gaps = X.clone()
    gaps[torch.rand(n, m, device="cuda", generator=rng) < 0.1] = torch.nan
    counts = torch.poisson(0.1 * X).to_sparse_csr()
    yield "limit", {"read_twice_ms": 2e3 * read_seconds(X)}
    cases = [(loss, data) for loss in ("frobenius", "kullback-leibler", "itakura-saito", 0.5) for data in (X, gaps)]
    for loss, data in [*cases, ("kullback-leibler", counts)]:
        kind = "sparse" if data is counts else "missing" if data is gaps else "complete"
        algorithm = PooledNMF(k, loss=loss, tol=0)
        parts = Federation({"all": data}, missing_values=np.nan if data is gaps else None)
        seconds = []
        for _ in range(2):  # the first run compiles
            began = time.perf_counter()
            run = fedfactor.run(algorithm, parts, rounds=30, seed=0)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
        yield (
            f"{loss} {kind}",
            {
                "ms_a_round": 1e3 * statistics.median(record.seconds for record in run.history[5:]),
                "first_run_s": seconds[0],
                "later_run_s": seconds[1],
                "relative_error": run.relative_error,
            },
        )


def main() -> None:
    """Print one line for each case, and all of it as JSON at the end."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=10_000)
    parser.add_argument("--part", choices=["rounds", "losses"], help="only this part")
    options = parser.parse_args()
    if options.part != "rounds":
        for name, case in losses(50_000, 4000, 20):
            print(name, case, flush=True)
    if options.part == "losses":
        return
    found: dict[str, Any] = {"card": torch.cuda.get_device_name(), "torch": torch.__version__}
    for k in (20, 50):
        X = rows(options.rows, options.columns, k)
        for storage in ("bfloat16", "float32"):
            for owners in (1, 10):
                parts = split(X, owners, k, storage)
                limit = 2e3 * owners * read_seconds(parts.shard(parts.names[0]).X)
                case = measure(parts, k, X) | {"read_twice_ms": limit}
                found[f"k={k} {storage} owners={owners}"] = case
                print(f"k={k} {storage:8} owners={owners:2}", {name: round(value, 5) for name, value in case.items()})
                del parts
        del X
    found["sparse"] = sparse(options.rows, options.columns, 20_000_000, 20)
    print("sparse, 20 million stored cells", found["sparse"])
    for n, m in ((20_000, 1000), (1_000_000, 500), (200_000, 4000)):
        found[f"Boolean {n} x {m}"] = boolean(n, m, 20)
        print(f"Boolean {n} x {m}", found[f"Boolean {n} x {m}"])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
