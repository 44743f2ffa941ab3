from .fcf import FCF as FCF
from .fedavg_nmf import FedAvgNMF as FedAvgNMF
from .fedmf import FedMF as FedMF
from .fedsplit import FedSPLIT as FedSPLIT
from .pooled_cf import PooledCF as PooledCF
from .pooled_nmf import PooledNMF as PooledNMF

__all__ = ["FCF", "FedAvgNMF", "FedMF", "FedSPLIT", "PooledCF", "PooledNMF"]
