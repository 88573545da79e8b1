"""Starting a model from another's checkpoint."""

from collections import namedtuple
from typing import Any

from millrace.checkpoint.warm_start import warm_start
from millrace.core import logging
from millrace.core.export import export


@export(v1="estimator.WarmStartSettings")
class WarmStartSettings(
    namedtuple(
        "WarmStartSettings",
        [
            "ckpt_to_initialize_from", "vars_to_warm_start", "var_name_to_vocab_info",
            "var_name_to_prev_var_name",
        ],
    )
):  # fmt: skip
    """Which variables to take from which checkpoint; see `tf.train.warm_start`."""

    __slots__ = ()

    def __new__(
        cls, ckpt_to_initialize_from: str, vars_to_warm_start: Any = ".*",
        var_name_to_vocab_info: Any = None, var_name_to_prev_var_name: Any = None,
    ) -> "WarmStartSettings":  # fmt: skip
        if not ckpt_to_initialize_from:
            raise ValueError("`ckpt_to_initialize_from` MUST be set in WarmStartSettings")
        return super().__new__(
            cls, ckpt_to_initialize_from, vars_to_warm_start, var_name_to_vocab_info or {},
            var_name_to_prev_var_name or {},
        )  # fmt: skip

    @staticmethod
    def of(given: Any) -> "WarmStartSettings | None":
        """Settings given as such, as a checkpoint or folder, or None."""
        if given is None or isinstance(given, WarmStartSettings):
            return given
        if isinstance(given, (str, bytes)):
            return WarmStartSettings(given)
        raise ValueError(
            "warm_start_from must be a string or a WarmStartSettings, instead got "
            f"{type(given).__name__}"
        )


def warm_started(settings: WarmStartSettings) -> None:
    """Gives the variables of the default graph their initial values."""
    logging.info("Warm-starting from: %s", settings.ckpt_to_initialize_from)
    warm_start(*settings)
