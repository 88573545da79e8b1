"""What a model function is called for."""

from millrace.core.export import export


@export(v1="estimator.ModeKeys")
class ModeKeys:
    """TRAIN, EVAL and PREDICT."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"
