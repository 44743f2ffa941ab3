"""Plain loops, written to be compiled by :mod:`fedfactor.kernels.compiled`."""
