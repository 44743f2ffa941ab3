"""Does the paper hold? One folder for each; ``fedfactor reproduce NAME`` runs it."""
