from .fnmf import FNMF as FNMF
from .fnmf import FedProxNMF as FedProxNMF
from .fnmf import OneShotNMF as OneShotNMF
from .nmf import FedAvgNMF as FedAvgNMF
from .nmf import PooledNMF as PooledNMF

__all__ = ["FNMF", "FedAvgNMF", "FedProxNMF", "OneShotNMF", "PooledNMF"]
