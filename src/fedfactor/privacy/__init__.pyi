from .entropy import Entropy as Entropy

__all__ = ["Entropy"]
