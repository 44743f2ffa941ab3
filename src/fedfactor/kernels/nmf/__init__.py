"""Non-negative factors: steps, starts, missing cells, counts, exact solutions."""
