"""Flower's SuperLink and SuperNode as carriers of messages."""
