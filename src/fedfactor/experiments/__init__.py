"""Does the paper hold? One folder for each paper; ``fedfactor reproduce NAME`` runs it."""
