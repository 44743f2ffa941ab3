"""A federation over the workers of a Dask cluster."""
