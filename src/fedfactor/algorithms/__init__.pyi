from .fedavg_nmf import FedAvgNMF as FedAvgNMF
from .fedprox_nmf import FedProxNMF as FedProxNMF
from .fnmf import FNMF as FNMF
from .one_shot_nmf import OneShotNMF as OneShotNMF
from .pooled_nmf import PooledNMF as PooledNMF

__all__ = ["FNMF", "FedAvgNMF", "FedProxNMF", "OneShotNMF", "PooledNMF"]
