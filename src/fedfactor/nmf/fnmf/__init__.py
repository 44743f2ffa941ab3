"""FNMF: federated NMF with aligned components."""
