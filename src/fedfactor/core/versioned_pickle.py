"""Pickles with the version that wrote them."""

from __future__ import annotations

from typing import Any, ClassVar

from fedfactor.core.errors import DataError

_BY = "_pickled_by_fedfactor"


class VersionedPickle:
    """Refuses to be unpickled by another minor version, where attributes may have other names.

    It stands before the class that makes the pickle and reads it.
    """

    _pickled_by: ClassVar[str]

    def __getstate__(self) -> dict[str, Any]:
        above: Any = super()
        return {**above.__getstate__(), _BY: self._pickled_by}

    def __setstate__(self, state: dict[str, Any]) -> None:
        found = dict(state)
        above = super()
        by: Any = found.pop(_BY, "0.1")
        if by != self._pickled_by:
            raise DataError(
                f"This pickle of {type(self).__name__} was made by fedfactor {by}, and this is {self._pickled_by}: "
                "what lies in it is not what this version would find there. Unpickle it with the version that made it, "
                "and keep it with fedfactor.save, whose folders later versions read."
            )
        above.__setstate__(found)  # type: ignore[reportAttributeAccessIssue]
