"""Recommenders: ratings, implicit feedback, item weights, and their data."""
