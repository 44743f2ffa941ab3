"""Factor matrices together without sharing them."""
