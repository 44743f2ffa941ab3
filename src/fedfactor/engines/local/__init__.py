"""A whole federation on one machine: threads, processes, or a virtual clock."""
