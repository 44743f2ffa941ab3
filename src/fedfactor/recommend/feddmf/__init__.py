"""FedDMF: deep matrix factorization across companies."""
