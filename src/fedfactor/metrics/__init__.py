"""How good a factorisation is: reconstruction of each owner's rows, and agreement of components."""
