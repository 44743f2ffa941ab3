"""Fitted estimators and runs, written to folders and read back."""
