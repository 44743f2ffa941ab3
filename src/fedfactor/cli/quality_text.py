"""Sentences about the quality of a fit, in the terms of its model: shared by the terminal and the report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from fedfactor.core.pytree import is_list, is_mapping

_SHOWN = 4
"""Decimals of an error: two errors that agree in them are called equal."""

_WORST_FEATURES = 10


def quality_of(record: Mapping[str, Any], algorithm: Any, ratings: bool = False) -> dict[str, Any]:
    """Return what ``fit`` measured, or what follows from the relative error alone where it measured nothing."""
    found = record.get("quality")
    if is_mapping(found) and isinstance(found.get("kind"), str):
        return dict(found)
    from fedfactor.evaluation.fit_quality import kind_of_fit

    kind = kind_of_fit(algorithm, ratings)
    error = record.get("relative_error")
    if not isinstance(error, float | int) or not math.isfinite(error):
        return {"kind": kind}
    if kind in ("squared", "divergence"):
        return {"kind": kind, "explained": 1 - error**2}
    return {"kind": kind} | ({"errors_per_100_ones": 100 * error**2} if kind == "boolean" else {})


def number(value: Any) -> float | None:
    """Return a finite number, or None."""
    return float(value) if isinstance(value, float | int) and math.isfinite(value) else None


def main_figures(quality: Mapping[str, Any]) -> list[str]:
    """Say in short phrases how good a fit is, the baseline last; nothing where nothing was measured.

    Examples
    --------
    >>> main_figures({"kind": "squared", "explained": 0.9649, "baseline": {"name": "means", "explained": 0.5281}})
    ['explains 96.5 % of the sum of squares', 'baseline (means): explains 52.8 % of the sum of squares']
    >>> main_figures({"kind": "boolean", "errors_per_100_ones": 5.479, "precision": 1.0, "recall": 0.9452})
    ['5.5 wrong cells per 100 ones', 'precision 1.000', 'recall 0.945']
    """
    base = quality.get("baseline")
    own = _phrases(quality)
    if not own or not is_mapping(base):
        return own
    return [
        *own,
        f"baseline ({base.get('name', 'simplest model')}): {', '.join(_phrases({**base, 'kind': quality['kind']}))}",
    ]


def _phrases(quality: Mapping[str, Any]) -> list[str]:
    explained = number(quality.get("explained"))
    wrong = number(quality.get("errors_per_100_ones"))
    found: list[str] = []
    if explained is not None:
        found.append(explains(quality["kind"], explained))
    if wrong is not None:
        found.append(f"{wrong:.1f} wrong cells per 100 ones")
    for name in ("precision", "recall"):
        if (value := number(quality.get(name))) is not None:
            found.append(f"{name} {value:.3f}")
    if (value := number(quality.get("held_out_rmse"))) is not None:
        found.append(f"RMSE {value:.4f} on held-out ratings")
    if (value := number(quality.get("held_out_ndcg"))) is not None:
        found.append(f"NDCG@10 {value:.4f} on held-out items")
    return found


def explains(kind: str, share: float) -> str:
    """Say what share of the sum of squares, or of the deviance, is explained.

    Examples
    --------
    >>> explains("divergence", 0.441), explains("squared", -0.1)
    ('explains 44.1 % of the deviance', 'explains nothing')
    """
    of = "deviance" if kind == "divergence" else "sum of squares"
    return f"explains {100 * share:.1f} % of the {of}" if share > 0 else "explains nothing"


def owner_figure(kind: str, error: float) -> tuple[str, str]:
    """Return the head and the cell of the column that puts an owner's relative error into the terms of the model.

    Examples
    --------
    >>> owner_figure("boolean", 0.2), owner_figure("squared", 0.5)
    (('wrong per 100 ones', '4.0'), ('of its squares', 'explains 75.0 %'))
    """
    share = 1 - error**2
    if kind == "boolean":
        return "wrong per 100 ones", f"{100 * error**2:.1f}"
    if kind in ("squared", "divergence"):
        head = "of its squares" if kind == "squared" else "of its deviance"
        return head, f"explains {100 * share:.1f} %" if share > 0 else "explains nothing"
    return "", ""


def main_card(quality: Mapping[str, Any], error: float | None, whose: str) -> tuple[str, str, str] | None:
    """Return the figure, its name and a remark for the summary of a report."""
    kind = quality["kind"]
    base: Any = quality.get("baseline")
    base = base if is_mapping(base) else {}
    held = {"ratings": ("held_out_rmse", "RMSE of held-out ratings"), "lists": ("held_out_ndcg", "NDCG@10, held out")}
    if kind in held:
        key, name = held[kind]
        value = number(quality.get(key))
        simple = number(base.get(key))
        if value is None:
            return None if error is None else (f"{error:.4f}", "relative error of fitted ratings", "not held out")
        return f"{value:.4f}", name, "" if simple is None else f"{base.get('name')}: {simple:.4f}"
    phrases = main_figures(quality)
    if kind == "divergence" and (share := number(quality.get("explained"))) is not None:
        return f"{100 * share:.1f} %", f"of the deviance explained, {whose}", "".join(phrases[1:])
    if kind == "boolean" and (wrong := number(quality.get("errors_per_100_ones"))) is not None:
        return f"{wrong:.1f}", f"wrong cells per 100 ones, {whose}", "; ".join(phrases[1:])
    return None if error is None else (f"{error:.4f}", f"relative error over {whose}", "; ".join(phrases))


_MEANING = {
    "squared": "The relative error is ‖X − UV‖ / ‖X‖; its square is the unexplained share of the sum of squares.",
    "divergence": "Errors are measured by the divergence that was minimized. The deviance is twice its sum; its "
    "explained share is relative to rows that are constant. The relative error is the root of the unexplained share, "
    "and cannot be compared with the relative error of a squared loss.",
    "boolean": "A cell is wrong if a one is missing (recall) or a zero is predicted as one (precision).",
    "ratings": "For the held-out figure a fifth of each owner’s ratings was set aside, the model was fitted to the "
    "others, and the mean over owners is shown. Relative errors below are those of the ratings that were fitted.",
    "lists": "For the held-out figure a fifth of each owner’s items was set aside, the model was fitted to the others, "
    "and lists of ten were judged; the mean over owners is shown. Higher is better.",
}


def meaning(quality: Mapping[str, Any], features: tuple[str, ...] | None) -> str:
    """Write what the figures mean, and the features that fit worst, as HTML."""
    base = quality.get("baseline")
    text = f"<p>{_MEANING.get(quality['kind'], '')}</p>"
    if isinstance(base, dict):
        text += f"<p>Quality: {escape('; '.join(main_figures(quality)))}.</p>"
    cells = quality.get("features")
    if not is_list(cells) or not cells or (features is not None and len(features) != len(cells)):
        return text
    boolean = quality["kind"] == "boolean"
    known = [(value, j) for j, each in enumerate(cells) if (value := number(each)) is not None]
    worst = sorted(known, key=lambda pair: -pair[0] if boolean else pair[0])[:_WORST_FEATURES]
    head = "wrong cells per 100 ones" if boolean else "explained, beyond the baseline"
    body = "".join(
        f'<tr><th scope="row">{escape(str(features[j] if features else j))}</th>'
        f"<td>{f'{value:.1f}' if boolean else f'{100 * value:.1f} %'}</td></tr>"
        for value, j in worst
    )
    return text + (
        f"<details><summary>Features that fit worst</summary><div class='card scroll'><table><thead><tr>"
        f"<th scope='col'>feature</th><th scope='col'>{head}</th></tr></thead><tbody>{body}</tbody></table>"
        "</div></details>"
    )


def gain_sentence(gain: Mapping[str, tuple[float, float]]) -> str:
    """Say how many owners gain over working alone, who gains most, and who does not; in shown decimals.

    Examples
    --------
    >>> gain_sentence({"a": (0.18261, 0.18259), "b": (0.3, 0.2)})
    '1 of 2 owners gain; the largest gain is that of b (0.3000 alone, 0.2000 together). No difference: a.'
    >>> gain_sentence({"oslo": (0.3614, 0.3898)})
    '0 of 1 owners gain. Lower error alone: oslo.'
    """
    shown = {name: (round(alone, _SHOWN), round(together, _SHOWN)) for name, (alone, together) in gain.items()}
    winners = [name for name, (alone, together) in shown.items() if together < alone]
    losers = [name for name, (alone, together) in shown.items() if together > alone]
    equal = [name for name, (alone, together) in shown.items() if together == alone]
    text = f"{len(winners)} of {len(gain)} owners gain"
    if winners:
        most = max(winners, key=lambda name: shown[name][0] / max(shown[name][1], 1e-12))
        alone, together = shown[most]
        text += f"; the largest gain is that of {most} ({alone:.4f} alone, {together:.4f} together)"
    text += "."
    text += f" No difference: {', '.join(equal)}." if equal else ""
    return text + (f" Lower error alone: {', '.join(losers)}." if losers else "")


def last_round_differs(last: float | None, final: float | None) -> str:
    """Explain why the error of the last round is not the final one; nothing where they agree as shown."""
    if last is None or final is None or round(last, _SHOWN) == round(final, _SHOWN):
        return ""
    return (
        f"The final error is {final:.4f}: rounds measure the error while V still changes, and it is measured again for "
        "the final factors, with every U fitted to the final V."
    )
