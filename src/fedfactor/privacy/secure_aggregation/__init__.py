"""Aggregation of masked uploads: the server learns the sum only."""
