"""Coherent federated NMF: barycenters, drift, clients, noise, private components, and real data."""
