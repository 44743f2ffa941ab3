"""Compiled loops for the CPU, and the one function that compiles and caches them."""
