"""A carrier of messages between a server and parties: one HTTPS address, at which each party has a box."""
