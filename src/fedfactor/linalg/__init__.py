"""Linear algebra on rows and factors: products, non-negative least squares, missing values, compiled loops, GPU."""
