"""Does the paper hold? One folder for each; ``python -m papers run NAME`` runs it."""
