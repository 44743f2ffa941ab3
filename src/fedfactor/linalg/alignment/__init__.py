"""Matching components of one factor with those of another."""
