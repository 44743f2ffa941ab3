"""Principal components and singular vectors of rows that cannot be pooled."""
