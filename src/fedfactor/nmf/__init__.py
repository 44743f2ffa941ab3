"""Non-negative matrix factorization: pooled, averaged, aligned, distributed."""
