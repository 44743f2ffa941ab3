"""PooledNMF: the iterates of NMF on pooled rows, from aggregated sums."""
