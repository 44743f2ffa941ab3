"""NMF of one matrix on several nodes: sketched, secure, asynchronous, on a grid."""
