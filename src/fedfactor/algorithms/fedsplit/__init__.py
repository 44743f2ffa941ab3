"""FedSPLIT: one-shot federated recommendation."""
