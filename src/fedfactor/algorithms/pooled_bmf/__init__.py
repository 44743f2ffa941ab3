"""PooledBMF: the Boolean factorization that pooled rows would give, from sums alone."""
