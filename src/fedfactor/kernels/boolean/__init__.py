"""Boolean factors: the product, packed bits, local solvers, proximal maps."""
