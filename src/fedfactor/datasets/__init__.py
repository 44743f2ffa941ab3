"""Data sets by name, and generators of planted data."""
