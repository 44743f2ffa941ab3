"""The claims this project makes, each one a file that can fail.

A claim is a module with a docstring (the claim, in one sentence) and a function ``claim() -> dict``: its figures and
``holds``, a bool. ``make prove`` runs them all at full count and writes ``evidence.json``; ``make prove ITEM=name``
runs one.
"""
