from .boolean_votes import BooleanVotes as BooleanVotes
from .fedavg_nmf import FedAvgNMF as FedAvgNMF
from .felb import FALB as FALB
from .felb import FELB as FELB
from .pooled_bmf import PooledBMF as PooledBMF
from .pooled_nmf import PooledNMF as PooledNMF

__all__ = ["FALB", "FELB", "BooleanVotes", "FedAvgNMF", "PooledBMF", "PooledNMF"]
