from .boolean import FALB as FALB
from .boolean import FELB as FELB
from .boolean_discrete import ASSO as ASSO
from .boolean_discrete import MEBF as MEBF
from .boolean_discrete import GreConD as GreConD
from .boolean_pooled import BooleanVotes as BooleanVotes
from .boolean_pooled import PooledBMF as PooledBMF
from .boolean_relaxed import ELBMF as ELBMF
from .boolean_relaxed import PRIMP as PRIMP
from .boolean_relaxed import ZhangBMF as ZhangBMF
from .nmf import FedAvgNMF as FedAvgNMF
from .nmf import PooledNMF as PooledNMF

__all__ = [
    "ASSO",
    "ELBMF",
    "FALB",
    "FELB",
    "MEBF",
    "PRIMP",
    "BooleanVotes",
    "FedAvgNMF",
    "GreConD",
    "PooledBMF",
    "PooledNMF",
    "ZhangBMF",
]
