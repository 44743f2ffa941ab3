"""Speed of the library, measured: ``python -m benchmarks``."""
