"""A federation over the ranks of an MPI job."""
