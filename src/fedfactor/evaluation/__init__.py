"""Choosing and judging models: metrics, rank selection, comparison, hold-out sets."""
