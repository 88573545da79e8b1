"""The names by which parts of SavedModels are known."""

from millrace.core.export import export

SAVED_MODEL_SCHEMA_VERSION = export(
    v1=(
        "saved_model.SAVED_MODEL_SCHEMA_VERSION",
        "saved_model.constants.SAVED_MODEL_SCHEMA_VERSION",
    ),
    v2="saved_model.SAVED_MODEL_SCHEMA_VERSION",
)(1)
SAVED_MODEL_FILENAME_PB = export(
    v1=("saved_model.SAVED_MODEL_FILENAME_PB", "saved_model.constants.SAVED_MODEL_FILENAME_PB"),
    v2="saved_model.SAVED_MODEL_FILENAME_PB",
)("saved_model.pb")
SAVED_MODEL_FILENAME_PBTXT = export(
    v1=(
        "saved_model.SAVED_MODEL_FILENAME_PBTXT",
        "saved_model.constants.SAVED_MODEL_FILENAME_PBTXT",
    ),
    v2="saved_model.SAVED_MODEL_FILENAME_PBTXT",
)("saved_model.pbtxt")
VARIABLES_DIRECTORY = export(
    v1=("saved_model.VARIABLES_DIRECTORY", "saved_model.constants.VARIABLES_DIRECTORY"),
    v2="saved_model.VARIABLES_DIRECTORY",
)("variables")
VARIABLES_FILENAME = export(
    v1=("saved_model.VARIABLES_FILENAME", "saved_model.constants.VARIABLES_FILENAME"),
    v2="saved_model.VARIABLES_FILENAME",
)("variables")
ASSETS_DIRECTORY = export(
    v1=("saved_model.ASSETS_DIRECTORY", "saved_model.constants.ASSETS_DIRECTORY"),
    v2="saved_model.ASSETS_DIRECTORY",
)("assets")

# Collections.
ASSETS_KEY = export(
    v1=("saved_model.ASSETS_KEY", "saved_model.constants.ASSETS_KEY"), v2="saved_model.ASSETS_KEY"
)("saved_model_assets")
MAIN_OP_KEY = export(v1=("saved_model.MAIN_OP_KEY", "saved_model.constants.MAIN_OP_KEY"))(
    "saved_model_main_op"
)
LEGACY_INIT_OP_KEY = export(
    v1=("saved_model.LEGACY_INIT_OP_KEY", "saved_model.constants.LEGACY_INIT_OP_KEY")
)("legacy_init_op")
TRAIN_OP_KEY = export(v1="saved_model.constants.TRAIN_OP_KEY")("saved_model_train_op")

# Signatures that TensorFlow 2 keeps for itself.
INIT_OP_SIGNATURE_KEY = "__saved_model_init_op"
TRAIN_OP_SIGNATURE_KEY = "__saved_model_train_op"

# Tags.
SERVING = export(
    v1=("saved_model.SERVING", "saved_model.tag_constants.SERVING"), v2="saved_model.SERVING"
)("serve")
TRAINING = export(
    v1=("saved_model.TRAINING", "saved_model.tag_constants.TRAINING"), v2="saved_model.TRAINING"
)("train")
GPU = export(v1=("saved_model.GPU", "saved_model.tag_constants.GPU"), v2="saved_model.GPU")("gpu")
TPU = export(v1=("saved_model.TPU", "saved_model.tag_constants.TPU"), v2="saved_model.TPU")("tpu")
EVAL = export(v1="saved_model.tag_constants.EVAL")("eval")

# Signatures.
DEFAULT_SERVING_SIGNATURE_DEF_KEY = export(
    v1=("saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY",
        "saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY"),
    v2="saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY",
)("serving_default")  # fmt: skip
CLASSIFY_INPUTS = export(
    v1=("saved_model.CLASSIFY_INPUTS", "saved_model.signature_constants.CLASSIFY_INPUTS"),
    v2="saved_model.CLASSIFY_INPUTS",
)("inputs")
CLASSIFY_METHOD_NAME = export(
    v1=("saved_model.CLASSIFY_METHOD_NAME", "saved_model.signature_constants.CLASSIFY_METHOD_NAME"),
    v2="saved_model.CLASSIFY_METHOD_NAME",
)("tensorflow/serving/classify")
CLASSIFY_OUTPUT_CLASSES = export(
    v1=(
        "saved_model.CLASSIFY_OUTPUT_CLASSES",
        "saved_model.signature_constants.CLASSIFY_OUTPUT_CLASSES",
    ),
    v2="saved_model.CLASSIFY_OUTPUT_CLASSES",
)("classes")
CLASSIFY_OUTPUT_SCORES = export(
    v1=(
        "saved_model.CLASSIFY_OUTPUT_SCORES",
        "saved_model.signature_constants.CLASSIFY_OUTPUT_SCORES",
    ),
    v2="saved_model.CLASSIFY_OUTPUT_SCORES",
)("scores")
PREDICT_INPUTS = export(
    v1=("saved_model.PREDICT_INPUTS", "saved_model.signature_constants.PREDICT_INPUTS"),
    v2="saved_model.PREDICT_INPUTS",
)("inputs")
PREDICT_METHOD_NAME = export(
    v1=("saved_model.PREDICT_METHOD_NAME", "saved_model.signature_constants.PREDICT_METHOD_NAME"),
    v2="saved_model.PREDICT_METHOD_NAME",
)("tensorflow/serving/predict")
PREDICT_OUTPUTS = export(
    v1=("saved_model.PREDICT_OUTPUTS", "saved_model.signature_constants.PREDICT_OUTPUTS"),
    v2="saved_model.PREDICT_OUTPUTS",
)("outputs")
REGRESS_INPUTS = export(
    v1=("saved_model.REGRESS_INPUTS", "saved_model.signature_constants.REGRESS_INPUTS"),
    v2="saved_model.REGRESS_INPUTS",
)("inputs")
REGRESS_METHOD_NAME = export(
    v1=("saved_model.REGRESS_METHOD_NAME", "saved_model.signature_constants.REGRESS_METHOD_NAME"),
    v2="saved_model.REGRESS_METHOD_NAME",
)("tensorflow/serving/regress")
REGRESS_OUTPUTS = export(
    v1=("saved_model.REGRESS_OUTPUTS", "saved_model.signature_constants.REGRESS_OUTPUTS"),
    v2="saved_model.REGRESS_OUTPUTS",
)("outputs")
