"""Federated Boolean factorization: noise, scarcity, abundance, component counts, real data."""
