"""``fedfactor report``: a page about a finished run, one file that needs nothing else."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from importlib import metadata, resources
from pathlib import Path
from string import Template
from typing import Annotated, Any

import numpy as np
import typer

from fedfactor.cli.console import Debug, duration, polite, size
from fedfactor.cli.quality_text import (
    gain_sentence,
    last_round_differs,
    main_card,
    meaning,
    number,
    owner_figure,
    quality_of,
)
from fedfactor.cli.run_summary import uploads
from fedfactor.core.algorithm import Meta
from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.printable_text import listed, printable
from fedfactor.core.pytree import is_mapping
from fedfactor.core.run import STATUS, Run
from fedfactor.io.run_record import part_of

_DRAWN = 12  # components drawn as figures; all of them are in the table
_NAMED = 10  # features named for each component
_CELLS = 4000  # shares by owner that are written out as a table


def report(
    result: Annotated[
        Path, typer.Argument(help="A folder written by fedfactor fit or fedfactor results.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The page; by default report.html in that folder.", show_default=False),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write a page about a result: its quality, the clients for which it is worse, components by name, privacy, how to
    use it.

    One HTML file without scripts that fetches nothing. It shows who the owners are and what share of each component
    they have; in private runs only what is published.

    Example: fedfactor report out/
    """
    with polite(debug):
        path = write_report(result, out)
    typer.echo(f"{path}: open it in a browser.")


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a result; return where it is."""
    path = folder / "report.html" if out is None else out
    # Shares by owner are made of U, which only its owner may read: so may the page.
    return write_atomic(path, page(folder).encode("utf-8", "replace"), 0o600)


def write_page(out: Path, unwanted: bool) -> Path | None:
    """Write the page; the results are written already, and no mistake in a page may look like one in them."""
    if unwanted:
        (out / "report.html").unlink(missing_ok=True)  # of a run that was overwritten
        return None
    try:
        return write_report(out)
    except Exception as error:
        typer.echo(f"Note: the results are written, but report.html is not ({error}).", err=True)
        return None


@dataclass(frozen=True, slots=True)
class Told:
    """A result as the page speaks of it."""

    folder: Path
    run: Run
    record: dict[str, Any]
    V: np.ndarray
    features: tuple[str, ...] | None
    owners: tuple[str, ...]

    @property
    def private(self) -> bool:
        """Whether uploads were protected: then no owner's own figures are shown."""
        return self.run.privacy is not None

    @property
    def party(self) -> str | None:
        """The party whose own result this is; None for a simulation or a coordinator."""
        return self.record.get("party")

    @property
    def ratings(self) -> bool:
        """Whether this is a recommender's result."""
        return bool(list((self.folder / "private").glob("*.model.npz")))

    @property
    def quality(self) -> dict[str, Any]:
        """How good the fit is, in the terms of its model."""
        return quality_of(self.record, self.run.algorithm, self.ratings)

    @property
    def rank(self) -> int:
        """Components that were asked for; rows of V below them hold the levels of users and items."""
        asked = self.record["settings"].get("n_components")
        return min(asked, len(self.V)) if self.ratings and isinstance(asked, int) else len(self.V)

    @property
    def shows_usage(self) -> bool:
        """Whether shares by owner may be shown: in the clear, or where the one owner is the reader."""
        known = [name for name, kept in self.run.factors.items() if len(kept.U)]
        return bool(known) and (not self.private or self.party is not None)


def page(folder: Path) -> str:
    """Fill the template; whatever comes from data is escaped on the way."""
    from fedfactor.io.result_folder import NOBODY, read_components
    from fedfactor.io.run_record import read_record
    from fedfactor.privacy.publication import promises
    from fedfactor.saved_models.run_folder import load_run

    run = load_run(folder)
    V, features = read_components(folder)
    # A page is made to be shown: of a run with a promise it says only what the promise covers.
    record = read_record(folder, published=promises(run.privacy))
    owners = tuple(name for name in run.scores if name != NOBODY) or tuple(n for n in run.factors if n != NOBODY)
    told = Told(folder, run, record, V, features, owners)
    sections: dict[str, tuple[str, str]] = {
        "warnings": ("Warnings", _warnings(told)),
        "good": ("How good it is", _good(told)),
        "components": ("The components", _components(told)),
        "owners": ("Who has how much of each", _usage(told)),
        "travelled": ("What travelled, and who saw it", _travelled(told)),
        "privacy": ("Which privacy holds", _privacy(told)),
        "use": ("How to use it", _use(told)),
        "settings": ("Settings", _settings(told)),
    }
    sections = {key: part for key, part in sections.items() if part[1]}
    k = told.rank
    m = V.shape[1]
    what = "items" if told.ratings else "features"
    template = Template((resources.files("fedfactor.cli") / "report.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=_text(f"{record['algorithm']}: {k} components of {m} {what}"),
        heading=_text(f"{k} components of {m:,} {what}"),
        lede=_lede(told),
        cards=_cards(told),
        links="".join(f'<li><a href="#{key}">{head}</a></li>' for key, (head, _) in sections.items()),
        body="\n".join(
            f'<section id="{key}"><h2>{head}</h2>\n{text}</section>' for key, (head, text) in sections.items()
        ),
        version=_version(),
    )


def _version() -> str:
    try:
        return metadata.version("fedfactor")
    except metadata.PackageNotFoundError:
        return ""


def _text(words: Any) -> str:
    return escape(printable(str(words)))


def _rows(told: Told) -> dict[str, int]:
    """Return the rows of each owner; none of a private run, whose exact number is a figure without noise."""
    if told.private:
        return {}
    said = part_of(told.record, "owners")
    found = {name: about.get("rows") for name, about in said.items() if is_mapping(about)}
    for name, kept in told.run.factors.items():
        if not found.get(name) and len(kept.U):
            found[name] = len(kept.U)
    return {name: int(rows) for name, rows in found.items() if rows}


def _lede(told: Told) -> str:
    rows = _rows(told)
    total = f" with {sum(rows.values()):,} rows" if rows and not told.party else ""
    steps = part_of(told.record, "preprocess").get("steps")
    done = f" Before the first round: {_text(', '.join(steps))}." if steps else ""
    stayed = "Rows and U stayed with their owners; V is common to all."
    if told.party:
        others = [name for name in part_of(told.record, "lineage").get("parties", ()) if name != told.party]
        with_whom = f"{len(others)} other parties ({_text(listed(others, 8))})" if others else "others"
        who = f"{_text(told.party)} with {with_whom}"
        stayed = (
            "Your rows, and how much of each component a row has (U), stayed with you; the components (V) are common "
            "to all parties."
        )
    else:
        count = len(told.owners) or told.record.get("clients", 0)
        names = ", ".join(told.owners[:8]) + (", …" if len(told.owners) > 8 else "")
        who = f"{count} owner{'s' if count != 1 else ''}{total}" + (f" ({_text(names)})" if names else "")
    ended = STATUS.get(told.record.get("status", ""), "")
    return (
        f"Factored together by {who}, with {_text(told.record['algorithm'])} in {told.record['rounds']} rounds"
        f"{f' ({ended})' if ended else ''}. {stayed}{done}"
    )


def _cards(told: Told) -> str:
    error = told.record.get("relative_error")
    card = main_card(told.quality, error, "your own rows" if told.party else "all rows")
    cards = [] if card is None else [card]
    worst = _worst(told)
    if worst is not None and len(told.owners) > 1:
        head, cell = owner_figure(told.quality["kind"], worst[1])
        remark = f"{worst[0]}: {cell} {head}" if head else worst[0]
        cards.append((f"{worst[1]:.4f}", "relative error of the worst owner", remark))
    record = told.record
    if "bytes_sent" in record:
        cards.append((size(record["bytes_sent"]), "sent by this party", f"in {record['letters']} messages"))
    else:
        cards.append(
            (size(record["bytes_up"]), "sent by all owners together", f"{size(record['bytes_down'])} received")
        )
    epsilon = _epsilon(record)
    if told.party is None or "privacy" in record:
        mode = part_of(record, "privacy").get("mode", "none")
        unit = part_of(record, "privacy").get("unit")
        cards.append(
            (
                "none"
                if mode == "none"
                else f"ε = {epsilon:.3g}"
                if math.isfinite(epsilon)
                else mode.replace("-", " "),
                "differential privacy" if math.isfinite(epsilon) else "protection of uploads",
                f"of one {_whose(unit)}" if unit else "no bound on what can be learnt of a row (ε = ∞)",
            )
        )
    return "".join(
        f"<li><b>{_text(a)}</b><span>{_text(b)}</span><br><small>{_text(c)}</small></li>" for a, b, c in cards
    )


def _epsilon(record: dict[str, Any]) -> float:
    try:
        return float(part_of(record, "privacy").get("epsilon", math.inf))
    except (TypeError, ValueError):
        return math.inf


def _worst(told: Told) -> tuple[str, float] | None:
    if told.private or told.party or not told.run.scores:
        return None
    name, error = told.run.worst_client
    return (name, error) if math.isfinite(error) else None


def _good(told: Told) -> str:
    parts: list[str] = []
    known = [name for record in told.run.history for name in record.metrics if "error" in name or "rmse" in name]
    metric = "relative_error" if "relative_error" in known else next(iter(known), "")
    errors = [record.metrics.get(metric, math.nan) for record in told.run.history]
    seen = [error for error in errors if math.isfinite(error)]
    if seen:

        def draw(ax: Any) -> None:
            from fedfactor.plots import plot_history

            plot_history(told.run, metric=metric, ax=ax)

        what = metric.replace("_", " ").capitalize()
        ends = f"{what} after each of {len(errors)} rounds, {seen[0]:.4f} at first and {seen[-1]:.4f} at last."
        parts.append(_figure(draw, ends, "wide", name="history"))
        final = told.record.get("relative_error") if metric == "relative_error" else None
        if more := last_round_differs(seen[-1], number(final)):
            parts.append(f'<p class="note">{more}</p>')
    parts.append(meaning(told.quality, told.features))
    if told.party:
        own = "The error above is that of your own rows: 0 describes every cell exactly, 1 nothing at all. "
        if "relative_error" not in told.record:
            own = (
                "The error of your own rows is yours alone to know, so this page does not show it: it is in private/. "
            )
        parts.append(
            f"<p>{own}What others have, they alone know. Whether it was worth it, on rows that took no part: "
            "<code>fedfactor federation worth</code>.</p>"
        )
    elif told.private:
        parts.append(
            "<p>Uploads were protected, so no owner’s own error is published: each owner can measure its own with "
            "<code>score</code>.</p>"
        )
    elif len(told.owners) > 1:
        worst = _worst(told)
        rows = _rows(told)
        body = ""
        gain = _kept_aside(told)
        kind = told.quality["kind"]
        head = owner_figure(kind, 0.0)[0]
        for name in sorted(told.run.scores, key=lambda each: -_finite(told.run.scores[each].relative_error)):
            error = told.run.scores[name].relative_error
            chosen = ' class="chosen"' if worst and name == worst[0] else ""
            count = f"{rows[name]:,}" if name in rows else "–"
            cells = f"<td>{count}</td><td>{error:.4f}</td>"
            cells += f'<td class="spare">{owner_figure(kind, error)[1]}</td>' if head else ""
            if gain:
                cells += "".join(f"<td>{each:.4f}</td>" for each in gain[name]) if name in gain else "<td>–</td>" * 2
            body += f'<tr{chosen}><th scope="row">{_text(name)}</th>{cells}</tr>'
        parts.append(
            "<p>A good total can hide an owner for which the components fit badly. Worst first:</p>"
            + _table(
                ("owner", "rows", "relative error", *((head,) if head else ()), *(_ASIDE if gain else ())),
                body,
                spare=3 if head else None,
            )
        )
        parts.append(_gain(gain))
    return "\n".join(parts)


_ASIDE = ("alone, on rows held out", "together")


def _kept_aside(told: Told) -> dict[str, tuple[float, float]]:
    """Return each owner's error on rows that it held out, alone and together, where it was measured."""
    found: dict[str, tuple[float, float]] = {}
    for name, about in part_of(told.record, "owners").items():
        both = about.get("kept_aside") if is_mapping(about) else None
        if is_mapping(both) and all(isinstance(both.get(key), float) for key in ("alone", "together")):
            found[name] = (both["alone"], both["together"])
    return found


def _gain(gain: dict[str, tuple[float, float]]) -> str:
    """Say who gains over going alone, and who does not."""
    if not gain:
        return (
            '<p class="note">Whether an owner gains over going alone is measured by <code>fedfactor compare</code> on '
            "rows held out.</p>"
        )
    return (
        f"<p>A fifth of each owner’s rows was held out, and described by components from the rest: its own alone, or "
        f"all owners’. {_text(gain_sentence(gain))}</p>"
    )


def _warnings(told: Told) -> str:
    """List what fit warned of; of a private run nothing, since notes speak of single owners."""
    notes: list[str] = told.record.get("notes") or []
    if told.private or not notes:
        return ""
    return '<ul class="plain">' + "".join(f"<li>{_text(each)}</li>" for each in notes) + "</ul>"


def _finite(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


def _table(heads: tuple[str, ...], body: str, *, words: bool = False, spare: int | None = None) -> str:
    """Write a table; with `words` its last column is text, not numbers. A phone does without the `spare` column."""
    classes = {len(heads) - 1: "text"} if words else {} if spare is None else {spare: "spare"}
    kinds = [f' class="{classes[place]}"' if place in classes else "" for place in range(len(heads))]
    head = "".join(f'<th scope="col"{kind}>{_text(each)}</th>' for kind, each in zip(kinds, heads, strict=True))
    return (
        '<div class="card scroll" tabindex="0" role="group" aria-label="table">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _figure(
    draw: Callable[[Any], Any],
    title: str,
    kind: str = "",
    *,
    name: str,
    caption: bool = True,
    excused: bool = True,
    **shape: float,
) -> str:
    """Draw a figure, or say which package would."""
    from fedfactor.core.errors import MissingExtraError
    from fedfactor.plots.svg import svg

    try:
        drawn = svg(draw, title, name=name, **shape)
    except (MissingExtraError, ImportError):
        if not excused:
            return ""
        return (
            '<p class="note">A figure would stand here: the package matplotlib draws it (pip install matplotlib).</p>'
        )
    below = f"<figcaption>{_text(title)}</figcaption>" if caption else ""
    return f'<div class="card {kind}"><figure>{drawn}{below}</figure></div>'


def _components(told: Told) -> str:
    from fedfactor.plots.features import plot_top_features, top_features

    k = told.rank
    found = top_features(told.V[:k], told.features, _NAMED)
    shares = _shares(told)
    order = list(range(k)) if shares is None else sorted(range(k), key=lambda t: -shares[t])
    tiles: list[str] = []
    for t in order[:_DRAWN]:
        names = ", ".join(name for name, _ in found[t][:3])

        def draw(ax: Any, component: int = t) -> None:
            plot_top_features(told.V, told.features, component=component, n=8, ax=ax)

        title = f"Component {t}: most weight on {names}." if names else f"Component {t} is empty."
        tiles.append(
            _figure(draw, title, name=f"component {t}", excused=not tiles, caption=False, width=3.4, height=2.5)
        )
    body = ""
    for t in order:
        words = ", ".join(f'{_text(name)} <span class="weight">{weight:.3g}</span>' for name, weight in found[t])
        share = "" if shares is None else f"<td>{100 * shares[t]:.1f}&nbsp;%</td>"
        body += f'<tr><th scope="row">{t}</th>{share}<td class="text">{words or "empty"}</td></tr>'
    heads = ("component", *(() if shares is None else ("share",)), "most weight on")
    why = "" if told.features else "<p>The columns had no names: they are counted from 0.</p>"
    why += (
        "<p>Below them V has a row of ones and the level of each item, which carry how much users and items are liked "
        "as such.</p>"
        if k < len(told.V)
        else ""
    )
    first = "" if k <= _DRAWN else f"<p>The {_DRAWN} largest are drawn; the table below has all {k}.</p>"
    ordered = "Largest first. " if shares is not None else ""
    table = _table(heads, body, words=True)
    made_of = _MADE_OF.get(told.quality["kind"], _SUM)
    return (
        f"<p>{ordered}The number of a component is its row in V. {made_of}</p>{why}{first}"
        f"<div class='tiles'>{''.join(tiles)}</div>{table}"
    )


_SUM = (
    "Each component is a pattern of features that rise together; a row is a sum of components, and U holds how much "
    "of each."
)
_MADE_OF = {
    "boolean": "Each component is a set of features that are 1 together; a row is the union of the components that its "
    "row of U selects.",
    "ratings": "A predicted rating is a sum over components, plus levels of the user and the item. The sign and the "
    "size of a single component have no meaning of their own.",
    "lists": "The score of an item is a sum over components; a single component has no meaning of its own.",
}
"""What rows are made of, by kind of fit."""


def _shares(told: Told) -> np.ndarray | None:
    """Return what share of all weight lies on each component; None where no U may be looked at."""
    if not told.shows_usage:
        return None
    length = np.abs(told.V).sum(axis=1)
    sums = sum(np.abs(kept.U).sum(axis=0) for kept in told.run.factors.values() if kept.U.shape[1] == len(length))
    weights = np.asarray(sums) * length
    return weights / weights.sum() if np.ndim(weights) and weights.sum() > 0 else None


def _usage(told: Told) -> str:
    if not told.shows_usage:
        why = "protected, so no owner’s shares are published" if told.private else "kept by the owners; none is here"
        return f"<p>What rows have of each component is {why}.</p>" if told.private else ""
    from fedfactor.plots.usage import plot_usage, usage_by_owner

    if told.ratings:
        return ""
    owners, shares = usage_by_owner(told.run)
    k = shares.shape[1]
    figure = ""
    if len(owners) > 1:
        title = f"Share of each owner’s weight on each of {k} components."
        height = min(6.0, 1.4 + 0.25 * min(len(owners), 40))
        figure = _figure(lambda ax: plot_usage(told.run, ax=ax), title, "wide", name="usage", height=height, width=5.6)
    body = ""
    wide = len(owners) * k <= _CELLS
    for name, own in zip(owners, shares, strict=True):
        most = sorted(range(k), key=lambda t: -own[t])[:5]
        words = ", ".join(f"{t} ({100 * own[t]:.0f} %)" for t in most if own[t] > 0)
        body += f'<tr><th scope="row">{_text(name)}</th><td class="text">{words or "none"}</td></tr>'
    text = figure + _table(("owner", "components it has most of"), body, words=True)
    if wide and k > 5:
        cells = "".join(
            f'<tr><th scope="row">{_text(name)}</th>' + "".join(f"<td>{100 * each:.1f}</td>" for each in own) + "</tr>"
            for name, own in zip(owners, shares, strict=True)
        )
        heads = ("owner, %", *map(str, range(k)))
        text += f"<details><summary>All shares</summary>{_table(heads, cells)}</details>"
    return text


def _travelled(told: Told) -> str:
    from fedfactor.io.run_record import missing_of

    meta = Meta(told.V.shape[1], told.owners or ("owner",), str(told.V.dtype), missing_of(told.record) is not None)
    try:
        said = uploads(told.run.algorithm, meta, told.record.get("privacy"))
    except Exception:  # a page about a run must not fail on a message that only a live run can describe
        said = []
    sees = part_of(part_of(told.record, "privacy"), "sees")
    seen = "".join(f"<dt>{_owners(told, who)} saw</dt><dd>{_owners(told, what)}</dd>" for who, what in sees.items())
    record = told.record
    if "bytes_sent" in record:
        amount = (
            f"This party sent {size(record['bytes_sent'])} in {record['letters']} messages, and no row; sent.jsonl in "
            "its folder lists each one. In formulas, with X for the rows, U for what each row has of each component "
            "and V for the components:"
        )
    else:
        took = f" and {duration(record['seconds'])}" if "seconds" in record else ""  # not published of a private run
        amount = (
            f"All owners together sent {size(record['bytes_up'])} and received {size(record['bytes_down'])} in "
            f"{record['rounds']} rounds{took}."
        )
    listed = "".join(f"<li>{_text(each)}</li>" for each in said)
    return f'<p>{_text(amount)}</p><ul class="plain">{listed}</ul>' + (f'<dl class="card">{seen}</dl>' if seen else "")


def _privacy(told: Told) -> str:
    about = part_of(told.record, "privacy")
    if told.party and not about:
        return (
            "<p>What protects uploads is in the terms that every party signed: "
            "<code>fedfactor federation show</code>.</p>"
        )
    if about.get("mode", "none") == "none":
        how = "A new agreement (<code>fedfactor federation init</code>) with " if told.party else ""
        return (
            "<p><b>None.</b> Uploads reached the server in the clear. Rows were not sent, but what is made of rows can "
            f"reveal rows, above all where an owner has few. {how}<code>--privacy secure-sum</code> shows the server "
            "sums only; <code>--privacy dp --epsilon 4</code> bounds what anyone can learn about one row.</p>"
        )
    epsilon = _epsilon(told.record)
    lines = [f"<p><b>{_text(_MODES.get(about['mode'], about['mode']))}</b> {_bound(epsilon, about)}</p>"]
    spent = about.get("data_set_epsilon")
    if told.party and isinstance(spent, float):
        lines.append(f"<p>By your own ledger your rows have cost ε = {spent:.3g} in all runs together.</p>")
    if about.get("void"):
        lines.append(
            "<p><b>The guarantee is void:</b> the noise was drawn from a seed, and who knows it can take it off.</p>"
        )
    for head, key in (("It does not cover", "not_covered"), ("This was a simulation", "simulation")):
        if about.get(key):
            items = "".join(f"<li>{_owners(told, each)}</li>" for each in about[key])
            lines.append(f'<p>{head}:</p><ul class="plain">{items}</ul>')
    return "".join(lines)


_MODES = {
    "secure-sum": "Secure aggregation: the server saw only what the uploads of all parties add up to, and no single "
    "one.",
    "dp": "Noise: what the server saw, and V, were made with noise that hides single ones.",
}
"""What protects uploads, for people."""


def _whose(unit: Any) -> str:
    return "party" if unit == "client" else str(unit)


def _owners(told: Told, text: Any) -> str:
    """Say owner, or party, where a record says client: the word for people."""
    return _text(
        re.sub(r"\bclient(?=s?\b)", "party" if told.party else "owner", str(text)).replace("partys", "parties")
    )


def _bound(epsilon: float, about: dict[str, Any]) -> str:
    """Say what bounds that which can be learnt of one row, first in plain words."""
    guarantee = _text(about.get("guarantee", ""))
    if math.isinf(epsilon):
        return (
            "No noise was added, so nothing bounds what all sums together may reveal about a row (ε = ∞). "
            f"<small>Guarantee: {guarantee}.</small>"
        )
    unit = _text(_whose(about.get("unit")))
    delta = about.get("delta")
    shown = f", δ = {delta:g}" if isinstance(delta, float | int) else ""
    chance = f", but for a chance of {delta:g}" if isinstance(delta, float | int) else ""
    return (
        f"Whatever was sent would have come out almost as likely without any one {unit}: likelier or less likely by a "
        f"factor of at most {math.exp(min(epsilon, 50.0)):.3g}{chance}. <small>Guarantee: ε = {epsilon:.3g}{shown}, "
        f"{guarantee}.</small>"
    )


def _use(told: Told) -> str:
    folder = printable(str(told.folder))
    if told.ratings:
        python = f"import fedfactor\n\nmodel = fedfactor.load({folder!r})\nitems, scores = model.recommend(USER, n=10)"
        shell = f"fedfactor recommend {_quoted(folder)} --user USER"
        shell += f"\nfedfactor predict {_quoted(folder)} --user USER --item ITEM"
    else:
        python = (
            f"import fedfactor\n\nmodel = fedfactor.load({folder!r})\nU = model.transform(new_rows)   # columns as "
            "in the files, not yet preprocessed\nmodel.components_             # V"
        )
        shell = f"fedfactor transform {_quoted(folder)} NEW_ROWS.csv -o u.csv"
        if told.record["algorithm"] == "PooledNMF" and not told.party:
            shell += f"\nfedfactor fit ALL_FILES --from {_quoted(folder)} -o NEXT   # rows or owners came since"
    shell += f"\nfedfactor export {_quoted(folder)} -o components.csv\nfedfactor info {_quoted(folder)}"
    return (
        f"<p>In Python:</p><pre tabindex='0'><code>{escape(python)}</code></pre>"
        f"<p>On the command line:</p><pre tabindex='0'><code>{escape(shell)}</code></pre>"
        "<p class='note'>private/ holds every owner’s own part. Do not pass it on with the rest.</p>"
    )


def _quoted(path: str) -> str:
    import shlex

    return shlex.quote(path)


def _settings(told: Told) -> str:
    record = told.record
    lines = {"algorithm": record["algorithm"], "seed": record["seed"], "rounds": record["rounds"], **record["settings"]}
    versions = part_of(record, "environment").get("versions")
    if is_mapping(versions):
        lines |= {f"version of {name}": version for name, version in versions.items()}
    items = "".join(f"<dt>{_text(name)}</dt><dd>{_text(_short(value))}</dd>" for name, value in lines.items())
    return f'<details><summary>All settings</summary><dl class="card">{items}</dl></details>'


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:199]}…"
