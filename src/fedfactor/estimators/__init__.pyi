from .fnmf import FNMF as FNMF
from .fnmf import FedProxNMF as FedProxNMF
from .fnmf import OneShotNMF as OneShotNMF
from .nmf import FedAvgNMF as FedAvgNMF
from .nmf import PooledNMF as PooledNMF
from .recommend import FedSPLIT as FedSPLIT
from .recommend import PooledCF as PooledCF
from .recommend_iterative import FCF as FCF
from .recommend_iterative import FedMF as FedMF

__all__ = ["FCF", "FNMF", "FedAvgNMF", "FedMF", "FedProxNMF", "FedSPLIT", "OneShotNMF", "PooledCF", "PooledNMF"]
