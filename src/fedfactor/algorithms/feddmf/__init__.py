"""FedDMF: deep matrix factorization across owners without matching users."""
