"""Random sketches, and what published sketches give away."""
