"""Boolean matrix factorization: pooled, federated, by votes, and local solvers."""
