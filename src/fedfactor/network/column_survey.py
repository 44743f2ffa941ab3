"""The survey before round 0, in messages: column sums that all clients' preprocessing depends on."""

from __future__ import annotations

from fedfactor.core.algorithm import Meta
from fedfactor.core.column_scales import BINS, ColumnSums
from fedfactor.core.pytree import Array, public, record
from fedfactor.core.wire import Leaf, Spec


@record("column_survey.Ask")
class Ask:
    """Down: requests the column sums; carries nothing else."""

    nothing: Array = public()


def survey_messages(meta: Meta) -> dict[type, Spec]:
    """List what may travel in a survey."""
    column = Leaf("float64", (meta.n_features,))
    sizes = Leaf("float64", (BINS, meta.n_features), exact=False)
    sums = {"support": column, "squares": column, "sums": column, "cells": column, "bins": sizes}
    return {Ask: {"nothing": Leaf("float64", ())}, ColumnSums: {"n": Leaf("float64", ()), **sums}}
