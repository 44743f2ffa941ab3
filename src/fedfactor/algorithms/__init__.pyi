from .async_nmf import AsynSD as AsynSD
from .async_nmf import AsynSSD as AsynSSD
from .distributed_nmf import DistributedNMF as DistributedNMF
from .dsanls import DSANLS as DSANLS
from .fedavg_nmf import FedAvgNMF as FedAvgNMF
from .pooled_nmf import PooledNMF as PooledNMF
from .secure_nmf import SynSD as SynSD
from .secure_nmf import SynSSD as SynSSD

__all__ = ["DSANLS", "AsynSD", "AsynSSD", "DistributedNMF", "FedAvgNMF", "PooledNMF", "SynSD", "SynSSD"]
