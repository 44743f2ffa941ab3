"""Compare the working tree with an earlier commit, bit by bit: ``python -m tests.comparison``."""
