from .dsanls import DSANLS as DSANLS
from .fedavg_nmf import FedAvgNMF as FedAvgNMF
from .pooled_nmf import PooledNMF as PooledNMF

__all__ = ["DSANLS", "FedAvgNMF", "PooledNMF"]
