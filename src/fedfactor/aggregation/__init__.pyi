from .robust import Robust as Robust
