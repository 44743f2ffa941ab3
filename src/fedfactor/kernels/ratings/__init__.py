"""Ratings and clicks: models of users and items, statistics, lists of the best items."""
