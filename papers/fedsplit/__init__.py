"""One-shot federated recommendation: groups alone, together, and under attack."""
