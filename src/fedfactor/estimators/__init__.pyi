from .nmf import FedAvgNMF as FedAvgNMF
from .nmf import PooledNMF as PooledNMF
from .recommend import FCF as FCF
from .recommend import FedMF as FedMF
from .recommend import FedSPLIT as FedSPLIT
from .recommend import PooledCF as PooledCF

__all__ = ["FCF", "FedAvgNMF", "FedMF", "FedSPLIT", "PooledCF", "PooledNMF"]
