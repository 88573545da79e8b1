"""Variables made of parts."""

from typing import Any

from millrace import gen_ops
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor, TensorOperators
from millrace.graph.default_graph import control_dependencies, name_scope
from millrace.graph.graph import Graph
from millrace.state.variable import Variable


@export(v1="PartitionedVariable")
class PartitionedVariable(TensorOperators):
    """A variable cut into parts, each a variable of its own; used as a tensor it is whole.

    Args:
      name, shape, dtype: of the whole.
      variable_list: the parts, each with its SaveSliceInfo.
      partitions: the number of parts along each dimension.
    """

    __array_priority__ = 100

    def __init__(self, name: str, shape: Any, dtype: Any, variable_list: Any, partitions: Any):
        if not isinstance(variable_list, (list, tuple)):
            raise TypeError(f"variable_list is not a list or tuple: {variable_list}")
        if not isinstance(partitions, (list, tuple)):
            raise TypeError(f"partitions is not a list or tuple: {partitions}")
        if not all(p >= 1 for p in partitions):
            raise ValueError(f"partition values must be positive: {partitions}")
        if not variable_list:
            raise ValueError("variable_list may not be empty")
        for part in variable_list:
            info = part._get_save_slice_info()
            if info is None:
                raise ValueError(
                    "All variables must have a save_slice_info available: " + part.name
                )
            if info.full_name != name:
                raise ValueError(
                    f"All variables' full names must match: {name}; But full name was: "
                    f"{info.full_name}"
                )
        self._name = name
        self._shape = TensorShape(shape)
        self._dtype = dtype
        self._partitions = list(partitions)
        self._variable_list = sorted(
            variable_list, key=lambda v: list(v._get_save_slice_info().var_offset)
        )

    @property
    def name(self) -> str:
        """The name of the whole."""
        return self._name

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        """The shape of the whole."""
        return self._shape

    def get_shape(self) -> TensorShape:
        """As `shape`."""
        return self._shape

    @property
    def graph(self) -> Graph:
        """The graph that the parts belong to."""
        return self._variable_list[0].graph

    @property
    def op(self) -> Any:
        """Not there: a variable of parts has no operation of its own."""
        raise AttributeError("a PartitionedVariable has no single operation: its parts do")

    def _get_variable_list(self) -> list[Variable]:
        return self._variable_list

    def _get_partitions(self) -> list[int]:
        return self._partitions

    def __iter__(self) -> Any:
        return iter(self._variable_list)

    def __len__(self) -> int:
        axes = self._partition_axes()
        if len(axes) > 1:
            raise NotImplementedError(f"Cannot get a length for {len(axes)} > 1 partition axes")
        return len(self._variable_list)

    def _partition_axes(self) -> list[int]:
        if all(p == 1 for p in self._partitions):
            return [0]
        return [i for i, p in enumerate(self._partitions) if p > 1]

    def _concat(self) -> Tensor:
        if len(self._variable_list) == 1:
            with name_scope(None):
                return gen_ops.identity(self._variable_list[0], name=self._name)
        axes = self._partition_axes()
        if len(axes) > 1:
            raise NotImplementedError(
                f"Cannot concatenate along more than one dimension: {axes}. Multi-axis partition "
                "concat is not supported"
            )
        with name_scope(self._name + "/ConcatPartitions/"):
            parts = [v.value() for v in self._variable_list]
            whole = gen_ops.concat_v2(parts, axes[0], name="concat")
        with name_scope(None):
            return gen_ops.identity(whole, name=self._name)

    def as_tensor(self) -> Tensor:
        """The whole as one tensor."""
        with control_dependencies(None):
            return self._concat()

    def _as_tensor(self, dtype: Any = None, as_ref: bool = False) -> Tensor:
        del as_ref
        if dtype is not None and not dtype.is_compatible_with(self._dtype):
            raise ValueError(
                f"Incompatible type conversion requested to type '{dtype.name}' for the "
                f"partitioned variable '{self._name}' of type '{self._dtype.name}' and shape "
                f"{self._shape}"
            )
        return self.as_tensor()

    def _apply(self, what: str, value: Any, use_locking: Any, name: Any, read_value: bool) -> Any:
        axes = self._partition_axes()
        if len(axes) > 1:
            raise NotImplementedError(
                "Cannot do assign action along more than one dimension: "
                f"{axes}. Multi-axis partition assign action is not supported"
            )
        if isinstance(value, list):
            values = value
        elif isinstance(value, PartitionedVariable):
            values = list(value)
        else:
            sizes = [int(v.shape[axes[0]]) for v in self._variable_list]
            values = gen_ops.split_v(value, sizes, axes[0], num_split=len(sizes))
        made = [
            getattr(v, what)(part, use_locking, name, read_value)
            for v, part in zip(self._variable_list, values, strict=True)
        ]
        return made

    def assign(
        self, value: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Sets the parts. Gives a list with what each part's `assign` gives."""
        return self._apply("assign", value, use_locking, name, read_value)

    def assign_add(
        self, value: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Adds to the parts. Gives a list with what each part's `assign_add` gives."""
        return self._apply("assign_add", value, use_locking, name, read_value)

    def assign_sub(
        self, value: Any, use_locking: bool = False, name: str | None = None,
        read_value: bool = True,
    ) -> Any:  # fmt: skip
        """Subtracts from the parts. Gives a list with what each part's `assign_sub` gives."""
        return self._apply("assign_sub", value, use_locking, name, read_value)
