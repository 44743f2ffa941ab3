"""FedSPLIT: a recommender from one exchange of item factors."""
