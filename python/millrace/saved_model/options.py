"""How models are saved and loaded."""

import enum
from typing import Any

from millrace.core.export import export


@export(v2="saved_model.experimental.VariablePolicy")
class VariablePolicy(enum.Enum):
    """What a model says of variables besides their values."""

    NONE = None
    SAVE_VARIABLE_DEVICES = "save_variable_devices"
    EXPAND_DISTRIBUTED_VARIABLES = "expand_distributed_variables"

    @staticmethod
    def from_obj(obj: Any) -> "VariablePolicy":
        """The policy for one, its value in any case, or None. ValueError for anything else."""
        if isinstance(obj, VariablePolicy):
            return obj
        key = None if obj is None else str(obj).lower()
        for policy in VariablePolicy:
            if policy.value == key:
                return policy
        raise ValueError(f"Received invalid VariablePolicy value: {obj}.")


@export(v1="saved_model.SaveOptions", v2="saved_model.SaveOptions")
class SaveOptions:
    """Options of `tf.saved_model.save`.

    Args:
      function_aliases: {name: tf.function}: names for what is traced of functions, which the model
        keeps.
      experimental_variable_policy: a VariablePolicy: whether the devices of variables are kept.
      extra_tags: tags of the model besides "serve".

    The others are TensorFlow's: they change nothing here.
    """

    def __init__(
        self, namespace_whitelist: Any = None, save_debug_info: bool = False,
        function_aliases: dict[str, Any] | None = None, experimental_debug_stripper: bool = False,
        experimental_io_device: str | None = None, experimental_variable_policy: Any = None,
        experimental_custom_gradients: bool = True, experimental_image_format: bool = False,
        experimental_skip_saver: bool = False, experimental_sharding_callback: Any = None,
        extra_tags: Any = None,
    ):  # fmt: skip
        self.namespace_whitelist = list(namespace_whitelist or [])
        self.save_debug_info = save_debug_info
        self.function_aliases = dict(function_aliases or {})
        self.experimental_debug_stripper = experimental_debug_stripper
        self.experimental_io_device = experimental_io_device
        self.experimental_variable_policy = VariablePolicy.from_obj(experimental_variable_policy)
        self.experimental_custom_gradients = experimental_custom_gradients
        self.experimental_image_format = experimental_image_format
        self.experimental_skip_saver = experimental_skip_saver
        self.experimental_sharding_callback = experimental_sharding_callback
        self.extra_tags = extra_tags


@export(v1="saved_model.LoadOptions", v2="saved_model.LoadOptions")
class LoadOptions:
    """Options of `tf.saved_model.load`.

    Args:
      allow_partial_checkpoint: variables that the checkpoint does not have keep zeros; else that is
        an error.
      experimental_skip_checkpoint: variables are not restored.

    The others are TensorFlow's: they change nothing here.
    """

    def __init__(
        self, allow_partial_checkpoint: bool = False, experimental_io_device: str | None = None,
        experimental_skip_checkpoint: bool = False, experimental_variable_policy: Any = None,
        experimental_load_function_aliases: bool = False,
    ):  # fmt: skip
        self.allow_partial_checkpoint = allow_partial_checkpoint
        self.experimental_io_device = experimental_io_device
        self.experimental_skip_checkpoint = experimental_skip_checkpoint
        self.experimental_variable_policy = VariablePolicy.from_obj(experimental_variable_policy)
        self.experimental_load_function_aliases = experimental_load_function_aliases
