"""What can be run again: the papers, their studies, which figures and tables each study answers, and on which data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["PAPERS", "Paper", "Size", "find_study", "missing_data"]

Size = Literal["quick", "usual", "full"]
"""``quick`` takes minutes, ``usual`` is what the pages show, ``full`` has the counts that the papers print."""


@dataclass(frozen=True, slots=True)
class Paper:
    """One folder of experiments.

    Attributes
    ----------
    title : str
    studies : mapping of str to tuple of str
        Study → the figures and tables it answers, as the paper numbers them; none where the paper has nothing like it.
    data : tuple of str
        Real sets that are used where they are here; names of :func:`fedfactor.data.load_dataset`.
    named_only : tuple of str
        Studies that run only when they are asked for by their own name, not by a figure.
    elsewhere : mapping of str to tuple of str
        Figures of this paper that another folder answers: figure → (name, study).
    tolerance : mapping of str to float
        Study → largest relative difference between its stored figures and those of another run of the same command;
        1e-6 for the others. Larger for runs in single precision and where an iteration amplifies the last bits.
    """

    title: str
    studies: Mapping[str, tuple[str, ...]]
    data: tuple[str, ...] = ()
    named_only: tuple[str, ...] = ()
    elsewhere: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=dict)


PAPERS: dict[str, Paper] = {
    "dsanls": Paper(
        "Fast and secure distributed NMF (DSANLS, Syn and Asyn methods)",
        {
            "iterations": (), "complexity": (), "protocol": (), "stalls": (), "errors": (), "scaling": (),
            "components": (), "solvers": (), "secure": (), "parties": (),
        },
        ("cbcl_faces", "fashion_mnist", "newsgroups", "ca_grqc"),
        tolerance=dict.fromkeys(("errors", "scaling", "components", "solvers", "secure"), 1e-4),
    ),
    "feddmf": Paper(
        "FedDMF: user attributes by deep matrix factorization",
        {
            "baselines": ("Fig. 5",), "variants": (), "users": ("Fig. 6", "Fig. 8"), "common": ("Fig. 7",),
            "items": ("Fig. 6", "Fig. 8"), "clients": (), "attributes": (), "letter": (),
        },
        ("movielens_small",),
        ("letter",),
        tolerance=dict.fromkeys(
            ("baselines", "variants", "users", "common", "items", "clients", "attributes", "letter"), 0.02
        ),
    ),
    "fedsplit": Paper(
        "FedSPLIT: one-shot federated group collaborative filtering",
        {
            "readings": (), "table": ("Table 1", "Table 2", "Table 3", "Fig. 3"), "sensitivity": (),
            "groups": (), "audit": ("Fig. 4",), "ranking": (), "surprise": (),
        },
        ("movielens_small", "movielens_1m"),
    ),
    "felb": Paper(
        "FELB and FALB: federated binary matrix factorization",
        {
            "toy": ("Fig. 1",), "noise": ("Fig. 2", "Fig. 7", "Fig. 8"), "scarcity": ("Fig. 3", "Fig. 9", "Fig. 10"),
            "abundance": ("Fig. 4", "Fig. 11", "Fig. 12"), "real": ("Fig. 6", "Fig. 15", "Fig. 16", "Table 1"),
            "drawn": ("Fig. 6", "Fig. 15", "Fig. 16"), "components": ("Fig. 17",), "size": ("Fig. 3", "Fig. 9"),
            "recovery": (),
        },
        (
            "movielens_small", "newsgroups", "mouse_bladder", "hapmap3", "pbmc68k", "mushroom", "chess", "roles",
        ),
        ("size",),
        elsewhere={
            "Fig. 5": ("privacy", "felb"), "Fig. 13": ("privacy", "felb"), "Fig. 14": ("privacy", "xor"),
        },
        tolerance=dict.fromkeys(("real", "drawn", "components"), 1e-3),
    ),
    "fnmf": Paper(
        "FNMF: coherence in federated NMF",
        {
            "barycenters": ("Fig. 1",), "drift": ("Fig. 3",), "trace": ("Fig. 3",), "convergence": (),
            "letter": (), "clients": ("Fig. 2",), "noise": (), "personal": ("Fig. 2",), "real": ("Table 1",),
            "fashion": ("Table 1",),
        },
        ("fashion_mnist", "orl_faces", "newsgroups", "mouse_bladder", "pbmc68k", "golub", "movielens_small"),
        elsewhere={"Fig. 4": ("privacy", "fnmf")},
    ),
    "privacy": Paper(
        "The papers' noise at its true price",
        {"felb": (), "xor": (), "fnmf": (), "curves": ()},
        ("mushroom", "chess", "fashion_mnist"),
    ),
}  # fmt: skip


def find_study(name: str, asked: str) -> list[tuple[str, str]]:
    """Return the (experiments, study) pairs that a study's name, a figure or a table stands for.

    Examples
    --------
    >>> find_study("feddmf", "fig 7"), find_study("felb", "Figure 5"), find_study("fedsplit", "audit")
    ([('feddmf', 'common')], [('privacy', 'felb')], [('fedsplit', 'audit')])
    """
    paper = PAPERS[name]
    if asked in paper.studies:
        return [(name, asked)]
    label = _label(asked)
    offered = {study: labels for study, labels in paper.studies.items() if study not in paper.named_only}
    found = [(name, study) for study, labels in offered.items() if label in labels]
    found += [paper.elsewhere[label]] if label in paper.elsewhere else []
    if not found:
        known = sorted({*(one for labels in paper.studies.values() for one in labels), *paper.elsewhere})
        figures = f", and these figures and tables: {', '.join(known)}" if known else ""
        raise ValueError(f"There is no study {asked!r} of {name}. It has {', '.join(paper.studies)}{figures}.")
    return found


def _label(asked: str) -> str:
    """Write "fig5", "Figure 5" and "table 1" as the catalogue does."""
    found = re.fullmatch(r"(fig|figure|tab|table)\.?\s*(\d+)", asked.strip().lower())
    return asked if found is None else f"{'Fig.' if found[1].startswith('fig') else 'Table'} {found[2]}"


def missing_data(name: str) -> list[str]:
    """Name the sets of these experiments that are not here."""
    from fedfactor.datasets.loading import available  # with it come readers of all formats

    here = available()
    return [known for known in PAPERS[name].data if not here.get(known, False)]
