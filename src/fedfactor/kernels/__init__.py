"""The mathematics: arrays in, arrays out. No client, no server, no class.

Arrays may be NumPy, SciPy sparse or torch; only :mod:`fedfactor.kernels.products` knows dense from sparse. Compiled
loops are a fast path for NumPy arrays and may be absent.
"""
