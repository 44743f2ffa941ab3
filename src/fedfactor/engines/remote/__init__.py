"""A federation of parties that exchange messages: what any carrier such as Flower has to deliver."""
