"""Options of datasets."""

import enum
from typing import Any

from millrace.core.export import export


class _Group:
    """Options by name: those of TensorFlow are taken, those that mean something here are read."""

    _known: tuple[str, ...] = ()

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._values.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._values[name] = value

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._values == other._values  # type: ignore[attr-defined]

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def _merged(self, other: Any) -> Any:
        made = type(self)()
        made._values.update(self._values)
        for name, value in other._values.items():
            mine = made._values.get(name)
            made._values[name] = mine._merged(value) if isinstance(mine, _Group) else value
        return made


@export(v1="data.experimental.AutotuneOptions", v2="data.experimental.AutotuneOptions")
class AutotuneOptions(_Group):
    """`ram_budget`: how many bytes a stage that works ahead may keep."""


@export(v1="data.experimental.OptimizationOptions", v2="data.experimental.OptimizationOptions")
class OptimizationOptions(_Group):
    """How pipelines are rewritten. Taken and not used: stages are fused anyway."""


@export(
    v1=("data.experimental.ThreadingOptions", "data.ThreadingOptions"),
    v2=("data.experimental.ThreadingOptions", "data.ThreadingOptions"),
)
class ThreadingOptions(_Group):
    """Threads of a pipeline. Taken and not used: there is one pool."""


@export(v1="data.experimental.DistributeOptions", v2="data.experimental.DistributeOptions")
class DistributeOptions(_Group):
    """How pipelines are divided between workers. Taken and not used."""


@export(v1="data.experimental.AutoShardPolicy", v2="data.experimental.AutoShardPolicy")
class AutoShardPolicy(enum.IntEnum):
    """How the elements of a dataset are divided between workers. Taken and not used."""

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


@export(v1="data.experimental.AutotuneAlgorithm", v2="data.experimental.AutotuneAlgorithm")
class AutotuneAlgorithm(enum.Enum):
    """How sizes of buffers are found. Taken and not used."""

    DEFAULT = 0
    HILL_CLIMB = 1
    GRADIENT_DESCENT = 2
    MAX_PARALLELISM = 3
    STAGE_BASED = 4


SHARD_HINT = export(v1="data.experimental.SHARD_HINT", v2="data.experimental.SHARD_HINT")(-1)


@export(v1="data.experimental.ExternalStatePolicy", v2="data.experimental.ExternalStatePolicy")
class ExternalStatePolicy(enum.Enum):
    """What to do where the place of an iterator is saved, and functions of its dataset have state
    of their own: save all but that, with or without a warning, or fail."""

    WARN = 0
    IGNORE = 1
    FAIL = 2


@export(v1="data.Options", v2="data.Options")
class Options(_Group):
    """Options of a dataset, given to it by `with_options`.

    `experimental_deterministic` (or `deterministic`): False lets parallel stages give elements in
    the order in which they are made. `autotune.ram_budget`: how many bytes a stage that works ahead
    may keep. All others that TensorFlow has can be set and change nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._values.update(
            autotune=AutotuneOptions(), experimental_optimization=OptimizationOptions(),
            experimental_threading=ThreadingOptions(), threading=ThreadingOptions(),
            experimental_distribute=DistributeOptions(),
        )  # fmt: skip

    def merge(self, options: "Options") -> "Options":
        """These options, with those of `options` instead where it has any."""
        return self._merged(options)

    @property
    def _deterministic(self) -> bool | None:
        given = (self.experimental_deterministic, self.deterministic)
        return next((bool(value) for value in given if value is not None), None)
