from .nmf import FedAvgNMF as FedAvgNMF
from .nmf import PooledNMF as PooledNMF

__all__ = ["FedAvgNMF", "PooledNMF"]
