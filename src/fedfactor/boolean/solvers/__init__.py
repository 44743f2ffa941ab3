"""Boolean factorization of one matrix in one place."""
