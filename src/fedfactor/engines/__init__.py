"""How messages travel. Engines run any algorithm and know none."""
