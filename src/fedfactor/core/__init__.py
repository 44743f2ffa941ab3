"""The contract: what algorithms promise, what engines may rely on, and what travels."""
