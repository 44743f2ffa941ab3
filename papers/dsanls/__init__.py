"""Fast and secure distributed NMF (Qian et al., TKDE 2020): sketches for speed, parties that share one factor."""
