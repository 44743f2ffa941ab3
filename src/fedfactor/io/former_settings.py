"""Methods and parameters of result folders of version 0.1, under the names that they have now."""

from __future__ import annotations

from typing import Any

from fedfactor import algorithms
from fedfactor.core.parameters import former_names, settings_of_class


def with_present_names(record: dict[str, Any]) -> dict[str, Any]:
    """Give what version 0.1 called otherwise the name that it has now: a method, and settings of methods."""
    # The non-negative model had this name, which now is another model's.
    moved = record["algorithm"] == "PooledCF" and "start_scale" in record["settings"]
    name = "PooledCNMF" if moved else record["algorithm"]
    if name not in dir(algorithms):
        return record  # whoever needs the method says so
    settings = settings_of_class(getattr(algorithms, name))
    old = former_names(settings)
    former = {each.name: each.declared.former_values for each in settings}
    # What came during 0.1 with a default that is not what was done before.
    found: dict[str, Any] = {"ridge": 0.0} if name == "PooledNMF" and record.get("format", 1) == 1 else {}
    for key, value in record["settings"].items():
        now: str = old[key] if key in old else key
        found[now] = former.get(now, {}).get(value, value) if isinstance(value, str) else value
    return {**record, "algorithm": name, "settings": found}
