"""``fedfactor audit``: attack a configuration on the data it is meant for."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfactor.audit.findings import Finding
from fedfactor.cli.console import Debug, console, polite
from fedfactor.cli.parameter_parsing import build, data_files
from fedfactor.cli.privacy import (
    Allow,
    Clip,
    Colluding,
    Delta,
    Epsilon,
    Privacy,
    PublicRows,
    RowBound,
    Unit,
    privacy_of,
)
from fedfactor.cli.reading_options import reads
from fedfactor.cli.shared_options import Algorithm, Files, Out, Rank, Rounds, Set
from fedfactor.core.client_data import Federation
from fedfactor.io.file_content import Reading

EXIT = {"REFUTED": 1, "not examined": 3}
"""Exit codes; 2 is a wrong call."""


@reads()
def audit(
    files: Files,
    out: Out,
    rank: Rank = None,
    terms: Annotated[
        Path | None,
        typer.Option(
            help="A federation.toml: its algorithm, rounds, preprocessing and privacy, in the place of options.",
            show_default=False,
        ),
    ] = None,
    algorithm: Algorithm = "pooled-nmf",
    rounds: Rounds = None,
    settings: Set = None,
    privacy: Privacy = "none",
    epsilon: Epsilon = None,
    delta: Delta = None,
    unit: Unit = None,
    clip: Clip = None,
    row_bound: RowBound = None,
    rows: PublicRows = None,
    colluding: Colluding = None,
    allow: Allow = None,
    seed: int = 0,
    canaries: Annotated[int, typer.Option(help="Rows that are planted, to bound ε from below.", min=20)] = 1000,
    debug: Debug = False,
    *,
    reading: Callable[..., Reading],
    steps: tuple[str, ...],
) -> None:
    """Attack a configuration and write audit.json and audit.html; ends with 1 for REFUTED, with 3 for not examined.

    Rows from uploads and sums, membership, columns that one row fills, differences of sums, a lower bound on ε from
    planted units; and a server that lies about V, about keys, or asks for refusals. "consistent" means that these
    attacks found nothing, never that the configuration is safe.

    With --terms it attacks what a federation agreed on: give files with rows like those that will take part.

    Example: fedfactor audit north.csv south.csv west.csv -k 3 --privacy secure-sum -o audited
    """
    with polite(debug):
        from fedfactor.audit import audit as attack
        from fedfactor.io.read import open_files

        noise: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "unit": unit, "clip": clip}
        noise |= {"row_bound": row_bound, "rows": rows, "colluding": colluding}
        if terms is not None:
            given = {**noise, "rank": rank, "rounds": rounds, "set": settings, "allow": allow, "step": steps or None}
            given |= {"privacy": None if privacy == "none" else privacy}
            given |= {"algorithm": None if algorithm == "pooled-nmf" else algorithm}
            method, federation, words, rounds, privacy = of_terms(terms, data_files(files), reading(), given)
        elif rank is None:
            raise ValueError("Say what to attack: --rank (with --algorithm, --privacy …), or --terms federation.toml.")
        else:
            method = build(algorithm, {"n_components": rank}, settings or ())
            federation = open_files(data_files(files), reading=reading(), steps=steps)
            words = privacy_of(privacy, **noise, allow=allow)
        report = attack(method, federation, privacy=words, rounds=rounds, seed=seed, canaries=canaries)
        if privacy in ("secure-sum", "dp"):
            report.findings.append(wrong_registry(federation.names))
        report.write(out)
    _tell(report, out)
    if report.verdict in EXIT:
        raise typer.Exit(EXIT[report.verdict])


def _tell(report: Any, out: Path) -> None:
    """Print a line for each attack, and what they come to."""
    from fedfactor.audit.report import short

    screen = console()
    for finding in report.findings:
        figures = "".join(f" {name.replace('_', ' ')} {short(value)};" for name, value in finding.figures.items())
        text = f"{finding.verdict:14} {finding.attack}:{figures} {finding.note}".rstrip()
        screen.print(text, soft_wrap=True, markup=False)  # with the note: an attack that was not tried says so there
    screen.print(f"{report.verdict}. The page is {out / 'audit.html'}", soft_wrap=True, markup=False)


def of_terms(
    file: Path, files: Sequence[Path], reading: Reading, given: Mapping[str, Any]
) -> tuple[Any, Federation, Any, int, str]:
    """Read from a federation.toml what is attacked: method, rows as its parties prepare them, privacy, rounds."""
    from fedfactor.federation.row_loading import prepare_rows
    from fedfactor.federation.terms import Terms
    from fedfactor.io.read import owner_name
    from fedfactor.privacy.dp import dp
    from fedfactor.privacy.minimums import Minimums

    for name, value in given.items():
        if value is not None:
            raise ValueError(f"--{name.replace('_', '-')} is in the terms. Leave it out, or leave out --terms.")
    terms = Terms.read(file)
    if not terms.features:
        raise ValueError(f"{file} names no columns yet. Fill it with: fedfactor federation agree")
    if terms.links:
        raise ValueError(f"{file} names links, which this audit does not know. Audit the same in Python.")
    owners = {owner_name(path): prepare_rows(path, terms, owner_name(path), reading) for path in files}
    protect = terms.content["privacy"]["protect"]
    minimums = Minimums(allow=tuple(terms.content["privacy"]["allow"]))
    words = (dp(**terms.noise), minimums) if terms.noise else (minimums, protect) if terms.secure else None
    return terms.algorithm(), Federation(owners), words, terms.content["run"]["rounds"], protect


def wrong_registry(names: Sequence[str]) -> Finding:
    """Put a key of the coordinator's own in the place of each party's, and compare the words that people read out."""
    from fedfactor.federation.fingerprint_words import terms_words
    from fedfactor.federation.terms import Terms

    def words(keys: Mapping[str, str]) -> str:
        return terms_words(Terms({"parties": {name: {"key": key} for name, key in keys.items()}}).fingerprint)

    true = {name: secrets.token_hex(32) for name in names}
    forged = [{**true, name: secrets.token_hex(32)} for name in names[:5]]
    same = sum(words(keys) == words(true) for keys in forged)
    return Finding(
        "a registry with keys of the coordinator's own",
        "a coordinator that hands out false keys",
        "parties who compare the words of their agreement notice",
        "REFUTED" if same else "consistent",
        {"registries": len(forged), "registries_with_the_same_words": same},
        "Without that comparison, by another way than the coordinator, it opens every upload: secure aggregation "
        "and its noise then protect against a curious coordinator, not against a lying one. "
        "The data do not show whether your parties compared.",
    )
