"""Which component belongs with which: plans, transport, barycenters, drift."""
