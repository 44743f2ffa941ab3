"""Metrics of factorizations, ratings and rankings."""
