from .ratings import Tuned as Tuned
from .ratings import choose_recommender as choose_recommender
from .ratings import rating_folds as rating_folds
from .ratings import tune_cnmf as tune_cnmf
from .ratings import tune_owners as tune_owners
from .stacked import tune_joint_rank as tune_joint_rank
