"""What each figure of an audit means, in words for those who must decide on it."""

from __future__ import annotations

from fedfactor.audit.findings import Finding

__all__ = ["FIGURES", "explanations"]

FIGURES = {
    "rows": "Rows that were looked for. Nothing is said about rows beyond these.",
    "recovered": "Rows that the attacker wrote down exactly, cell by cell. One is too many.",
    "false": "Rows that the attacker wrote down but that do not exist: the more of these, the less it knows.",
    "confirmed": "Rows that a party who guesses them finds confirmed by the upload. One is too many.",
    "uploads": "Uploads that were looked at, one of every kind and owner.",
    "uploads_that_span_everything": "Uploads in which every conceivable row lies: they confirm none.",
    "sums": "Sums over all owners that were looked at.",
    "sums_that_span_everything": "Sums in which every conceivable row lies: they confirm none.",
    "owners_with_few_rows": "Owners with no more rows than components; what they send nearly is their rows.",
    "owners": "Owners that were attacked.",
    "relative_error_on_unknown_cells": "How far off the attacker's values are for cells it did not know: 0 is exact, "
    "1 is no better than writing zero everywhere.",
    "auc": "Chance that the attacker ranks a row that was in the run above one that was not: 0.5 is tossing a coin, "
    "1 is certainty.",
    "auc_interval": "Where that chance lies with 95 % confidence, given so few rows.",
    "auc_of_another_client": "The same with vectors of an owner that never saw these users: what anyone can guess.",
    "auc_by_comparison": "The same for an attacker who compares the vectors of two owners.",
    "auc_interval_of_another_client": "Its range with 95 % confidence.",
    "auc_interval_by_comparison": "Its range with 95 % confidence.",
    "tpr_at_0.1%_fpr": "Share of rows in the run that the attacker names while it wrongly names one in a thousand.",
    "tpr_at_0.1%_fpr_interval": "Its range with 95 % confidence.",
    "false_alarms_at_0.1%_fpr_at_most": "Share of other rows that may be named wrongly, given so few of them.",
    "tpr_at_0.1%_fpr_resolvable": "Whether there are enough rows outside the run to measure this at all.",
    "tpr_at_1%_fpr": "Share of rows in the run that the attacker names while wrongly naming one in a hundred others.",
    "tpr_at_1%_fpr_interval": "Its range with 95 % confidence.",
    "false_alarms_at_1%_fpr_at_most": "Share of other rows that may be named wrongly, given so few of them.",
    "tpr_at_1%_fpr_resolvable": "Whether there are enough rows outside the run to measure this at all.",
    "singleton_columns": "Columns that one single row fills, such as a rare diagnosis.",
    "rows_that_fill_one": "Rows that fill such a column.",
    "rows_exposed": "Of these, rows whose private weights the sum shows. One is too many.",
    "withheld_columns": "Columns that were held back because too few rows fill them.",
    "refused": "The software refused to form the sum that the attack needs.",
    "relative_error": "How far the difference of two sums is from one owner's upload: 0 is exact, 1 is no better than "
    "writing zero everywhere.",
    "back": "Share of the ratings unknown to the attacker that it finds to within half a star.",
    "back_without": "The same without the upload, from the ratings it knows: what can be guessed anyway.",
    "known": "Share of the ratings that the attacker knows already.",
    "largest": "The worst owner's share of ratings found.",
    "pairs_of_one_user": "Pairs of items that one single user touched.",
    "share_of_touched_pairs": "Their share of all pairs that at least one user touched.",
    "rows_met": "Rows that equal a set of columns which all owners receive.",
    "rows_published": "Of these, rows that only the row itself can have proposed. One is too many.",
    "sets_received": "Sets of columns that owners receive in the run.",
    "counts_of_one": "Share of the counts, which the server sees, that speak of one single row.",
    "offered": "Lies that were offered to a party.",
    "taken_not_finite": "Lies with numbers that are none, which a party would have worked on. One is too many.",
    "taken_negative": "Lies with signs that choose which rows speak, which a party would have worked on. One is too "
    "many.",
    "taken_one_column": "Lies with one column of another sign, which a party would have worked on. One is too many.",
    "taken_tiny": "Lies of another scale, a billionth, which a party would have worked on.",
    "taken_huge": "Lies of another scale, a billion, which a party would have worked on.",
    "sizes_tried": "Ways in which an owner's rows were changed to see whether it still answers.",
    "sizes_refused": "Of these, ways that made it refuse: a refusal then reveals rows. One is too many.",
    "registries": "Agreements with a key of the coordinator's own in the place of a party's.",
    "registries_with_the_same_words": "Of these, agreements whose words a party could not distinguish from the true "
    "one. One is too many.",
    "epsilon": "The ε that the attack proves, with 95 % confidence: the true one is at least this.",
    "claimed_epsilon": "The ε that is claimed: the true one is said to be at most this.",
    "without_a_model": "The proven ε if nothing is assumed about the noise.",
    "gaussian": "The proven ε if the noise is of the kind that the software says.",
    "mu": "The same as a distance, in standard deviations of the noise, between a run with the unit and one without.",
    "false_alarms": "Runs without the planted unit that the attacker took for runs with it.",
    "misses": "Runs with the planted unit that the attacker took for runs without it.",
    "runs": "Runs of the real software, half of them with the unit.",
    "told_by": "What distinguished the two kinds of runs; anything but the sums is a published exact figure.",
    "part_of_the_bound": "How much of the change that the noise is made for the planted unit really makes: near 1, the "
    "attack is as hard as one can be.",
    "guesses": "Planted rows on which the attacker ventured a guess.",
    "right": "Of these, guesses that were right; half of them by mere luck.",
    "canaries": "Rows that were planted, each with a coin that decided whether it took part.",
    "most_it_could_show": "The largest ε that so few planted rows could prove.",
}
"""Every figure that an attack reports."""


def explanations(findings: list[Finding]) -> dict[str, str]:
    """Explain the figures that occur.

    Examples
    --------
    >>> list(explanations([Finding("a", "server", "claim", "consistent", {"runs": 20})]))
    ['runs']
    """
    return {name: FIGURES[name] for finding in findings for name in finding.figures}
