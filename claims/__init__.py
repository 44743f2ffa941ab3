"""The claims this project makes, each one a file that can fail.

A claim is a module with a docstring (the claim, in one sentence) and a function ``claim() -> dict``: its figures and
``holds``, a bool. ``make claims`` runs them all at full count and writes ``evidence.json``; ``make claims ITEM=name``
runs one.
"""
