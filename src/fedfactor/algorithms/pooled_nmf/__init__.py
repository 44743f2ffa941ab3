"""PooledNMF: the iterates of NMF on pooled rows, from sums alone."""
