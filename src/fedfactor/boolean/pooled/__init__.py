"""PooledBMF: Boolean factorization of pooled rows, from aggregated counts."""
