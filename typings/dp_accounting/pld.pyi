from dp_accounting import PrivacyAccountant

class PLDAccountant(PrivacyAccountant):
    def __init__(self, *, value_discretization_interval: float = ...) -> None: ...
