from .accounting import calibrate as calibrate
from .accounting import epsilon_of as epsilon_of
from .dp import dp as dp
from .entropy import Entropy as Entropy
from .ledger import BudgetError as BudgetError
from .ledger import Ledger as Ledger
from .listener import Listener as Listener
from .minimums import Minimums as Minimums
from .minimums import PrivacyWarning as PrivacyWarning
from .minimums import RefusedError as RefusedError
from .noise import Clip as Clip
from .noise import Gaussian as Gaussian
from .paper_noise import PaperNoise as PaperNoise
from .report import describe as describe
from .robust import Robust as Robust
from .secure_sum import SecureSum as SecureSum

__all__ = [
    "BudgetError",
    "Clip",
    "Entropy",
    "Gaussian",
    "Ledger",
    "Listener",
    "Minimums",
    "PaperNoise",
    "PrivacyWarning",
    "RefusedError",
    "Robust",
    "SecureSum",
    "calibrate",
    "describe",
    "dp",
    "epsilon_of",
]
