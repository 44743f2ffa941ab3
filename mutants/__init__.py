"""Small faults put into the source on purpose: does a fast test notice? ``make mutants``, or ``ROOM=core`` with it."""
