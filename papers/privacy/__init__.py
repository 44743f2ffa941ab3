"""Noise as the papers print it, at its true price; and what proven noise costs instead."""

from papers.privacy.run import STUDIES, reproduce

__all__ = ["STUDIES", "reproduce"]
