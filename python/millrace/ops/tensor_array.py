"""TensorArray: tensors by index, for loops."""

import itertools
from typing import Any

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.errors import InvalidArgumentError, OutOfRangeError
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph, name_scope
from millrace.graph.operation import Operation
from millrace.graph.static_value import constant_value
from millrace.ops import array


def _shape_tensor(shape: TensorShape) -> Any:
    """A shape as the list ops take it: -1 for sizes that are not known."""
    if shape.rank is None:
        return -1
    sizes = [-1 if size is None else size for size in shape.as_list()]
    return convert_to_tensor(sizes, dtype=dtypes.int32, name="element_shape")


_numbers = itertools.count()
_READS = (gen_ops.tensor_list_get_item, gen_ops.tensor_list_stack)


class _Lists:
    """A TensorArray whose elements are a list: a value that its `flow` carries along, so that
    gradients of every order pass through it."""

    def __init__(self, dtype: Any, flow: Tensor, dynamic_size: bool, clear_after_read: bool):
        self.dtype = dtype
        self.flow = flow
        self.handle = flow
        self.dynamic_size = dynamic_size
        self.clear_after_read = clear_after_read

    def with_flow(self, flow: Tensor) -> "_Lists":
        other = _Lists(self.dtype, flow, self.dynamic_size, self.clear_after_read)
        other.handle = self.handle
        other.array_name = self.array_name
        return other

    array_name = ""

    def _call(self, function: Any, *args: Any, name: str | None = None, **kwargs: Any) -> Any:
        values = {"_tensor_array": self.array_name}
        if self.clear_after_read and function in _READS:
            # A number of its own, so that two reads are never taken for one.
            values["_clear_after_read"] = str(next(_numbers))
        if not self.dynamic_size:
            values["_fixed_size"] = "1"
        with get_default_graph()._attr_scope(values):
            return function(*args, name=name, **kwargs)

    def read(self, index: Any, shape: TensorShape, name: str | None) -> Tensor:
        return self._call(
            gen_ops.tensor_list_get_item, self.flow, index, _shape_tensor(shape), self.dtype,
            name=name,
        )  # fmt: skip

    def write(self, index: Any, value: Tensor, name: str | None) -> Tensor:
        return self._call(
            gen_ops.tensor_list_set_item, self.flow, index, value, self.dynamic_size, name=name
        )

    def gather(self, indices: Any, shape: TensorShape, name: str | None) -> Tensor:
        return self._call(
            gen_ops.tensor_list_gather, self.flow, indices, _shape_tensor(shape), self.dtype,
            name=name,
        )  # fmt: skip

    def stack(self, shape: TensorShape, name: str | None) -> Tensor:
        return self._call(
            gen_ops.tensor_list_stack, self.flow, _shape_tensor(shape), self.dtype, name=name
        )

    def concat(self, shape: TensorShape, name: str | None) -> Tensor:
        whole = shape if shape.rank is None else TensorShape([None, *shape.as_list()[1:]])
        leading = convert_to_tensor([], dtype=dtypes.int64)
        return self._call(
            gen_ops.tensor_list_concat_v2, self.flow, _shape_tensor(whole), leading, self.dtype,
            name=name,
        )[0]  # fmt: skip

    def scatter(self, indices: Any, value: Tensor, name: str | None) -> Tensor:
        return self._call(
            gen_ops.tensor_list_scatter_into_existing_list, self.flow, value, indices, name=name
        )

    def unstack(self, value: Tensor, shape: TensorShape, name: str | None) -> Tensor:
        rows = value.shape.as_list()[0] if value.shape.rank else None
        fresh = self.flow.op.type == "TensorListReserve"
        size = constant_value(self.flow.op.inputs[1]) if fresh else None
        if not fresh or (size is not None and rows is not None and rows != int(size)):
            count = array.shape(value)[0]
            return self.scatter(gen_ops.range(0, count, 1), value, name)
        return self._call(gen_ops.tensor_list_from_tensor, value, _shape_tensor(shape), name=name)

    def split(self, value: Tensor, lengths: Any, shape: TensorShape, name: str | None) -> Tensor:
        return self._call(
            gen_ops.tensor_list_split, value, _shape_tensor(shape), lengths, name=name
        )

    def size(self, name: str | None) -> Tensor:
        return gen_ops.tensor_list_length(self.flow, name=name)

    def close(self, name: str | None) -> Operation:
        return gen_ops.no_op(name=name)


class _Handles:
    """A TensorArray that lives in the runtime for a step and is known by a handle. Its `flow` only
    orders what is done with it."""

    dynamic_size = None
    clear_after_read = True

    def __init__(self, dtype: Any, handle: Tensor, flow: Tensor):
        self.dtype = dtype
        self.handle = handle
        self.flow = flow

    def with_flow(self, flow: Tensor) -> "_Handles":
        return _Handles(self.dtype, self.handle, flow)

    def read(self, index: Any, shape: TensorShape, name: str | None) -> Tensor:
        del shape
        return gen_ops.tensor_array_read_v3(self.handle, index, self.flow, self.dtype, name=name)

    def write(self, index: Any, value: Tensor, name: str | None) -> Tensor:
        return gen_ops.tensor_array_write_v3(self.handle, index, value, self.flow, name=name)

    def gather(self, indices: Any, shape: TensorShape, name: str | None) -> Tensor:
        return gen_ops.tensor_array_gather_v3(
            self.handle, indices, self.flow, self.dtype, shape, name=name
        )

    def stack(self, shape: TensorShape, name: str | None) -> Tensor:
        return self.gather(gen_ops.range(0, self.size(None), 1), shape, name)

    def concat(self, shape: TensorShape, name: str | None) -> Tensor:
        rest = shape if shape.rank is None else TensorShape(shape.as_list()[1:])
        return gen_ops.tensor_array_concat_v3(self.handle, self.flow, self.dtype, rest, name=name)[
            0
        ]

    def scatter(self, indices: Any, value: Tensor, name: str | None) -> Tensor:
        return gen_ops.tensor_array_scatter_v3(self.handle, indices, value, self.flow, name=name)

    def unstack(self, value: Tensor, shape: TensorShape, name: str | None) -> Tensor:
        del shape
        return self.scatter(gen_ops.range(0, array.shape(value)[0], 1), value, name)

    def split(self, value: Tensor, lengths: Any, shape: TensorShape, name: str | None) -> Tensor:
        del shape
        return gen_ops.tensor_array_split_v3(self.handle, value, lengths, self.flow, name=name)

    def size(self, name: str | None) -> Tensor:
        return gen_ops.tensor_array_size_v3(self.handle, self.flow, name=name)

    def close(self, name: str | None) -> Operation:
        return gen_ops.tensor_array_close_v3(self.handle, name=name)


class _Values:
    """A TensorArray outside of graphs: a list that writing changes. There is no other array behind
    the one that a method returns."""

    array_name = "array"

    def __init__(
        self, dtype: Any, size: int, dynamic_size: bool, clear_after_read: bool, shape: Any
    ):
        self.dtype = dtype
        self.dynamic_size = dynamic_size
        self.clear_after_read = clear_after_read
        self.flow = self.handle = gen_ops.tensor_list_reserve(-1, 0, dtype)
        self._values: list[Any] = [None] * size
        self._was_read: set[int] = set()
        self._shape = shape

    def with_flow(self, flow: Any) -> "_Values":
        del flow
        return self

    def as_list(self) -> Tensor:
        """A tensor list with these elements."""
        made = gen_ops.tensor_list_reserve(
            _shape_tensor(self._shape()), len(self._values), self.dtype
        )
        for i, value in enumerate(self._values):
            if value is not None:
                made = gen_ops.tensor_list_set_item(made, i, value)
        return made

    def fill(self, elements: Tensor) -> None:
        """Takes the elements of a tensor list."""
        shape = _shape_tensor(self._shape())
        self._values = [
            gen_ops.tensor_list_get_item(elements, i, shape, self.dtype)
            for i in range(int(gen_ops.tensor_list_length(elements)))
        ]

    def _one(self, index: int) -> Tensor:
        """The element; zeros where nothing was written."""
        value = self._values[index]
        if value is not None:
            return value
        if index in self._was_read:
            raise InvalidArgumentError(
                None,
                None,
                f"Could not read index {index} twice because it was cleared after a previous read "
                "(perhaps try setting clear_after_read = false?)",
            )
        shape = self._shape()
        known = next((v.shape for v in self._values if v is not None), None)
        if not shape.is_fully_defined() and known is not None:
            shape = known
        if not shape.is_fully_defined():
            raise InvalidArgumentError(
                None,
                None,
                f"Could not read from index {index}: nothing was written to it, and the shape of "
                f"the elements is not known: {shape}",
            )
        return array.zeros(shape, self.dtype)

    def read(self, index: Any, shape: TensorShape, name: str | None) -> Tensor:
        del shape, name
        index = int(index)
        if index < 0:
            raise OutOfRangeError(
                None, None, f"Reading from negative indices (index {index}) is not allowed."
            )
        if index >= len(self._values):
            raise OutOfRangeError(
                None,
                None,
                f"Tried to read from index {index} but array size is: {len(self._values)}",
            )
        value = self._one(index)
        if self.clear_after_read:
            self._values[index] = None
            self._was_read.add(index)
        return value

    def write(self, index: Any, value: Tensor, name: str | None) -> Any:
        del name
        index = int(index)
        if index < 0:
            raise OutOfRangeError(
                None, None, f"Writing to negative indices (index {index}) is not allowed."
            )
        self._grow(index + 1, f"Tried to write to index {index}")
        self._values[index] = value
        return self.flow

    def _grow(self, size: int, what: str) -> None:
        if size <= len(self._values):
            return
        if not self.dynamic_size:
            raise OutOfRangeError(
                None,
                None,
                f"{what} but array is not resizeable and size is: {len(self._values)}",
            )
        self._values += [None] * (size - len(self._values))

    def gather(self, indices: Any, shape: TensorShape, name: str | None) -> Tensor:
        rows = [self.read(i, shape, None) for i in indices.numpy()]
        return self._joined(rows, shape, name)

    def _joined(self, rows: list[Tensor], shape: TensorShape, name: str | None) -> Tensor:
        if rows:
            return gen_ops.pack(rows, name=name)
        rest = shape.as_list() if shape.is_fully_defined() else []
        return array.zeros([0, *rest], self.dtype)

    def stack(self, shape: TensorShape, name: str | None) -> Tensor:
        return self._joined([self._one(i) for i in range(len(self._values))], shape, name)

    def concat(self, shape: TensorShape, name: str | None) -> Tensor:
        rows = [self._one(i) for i in range(len(self._values))]
        if rows:
            return array.concat(rows, 0, name)
        rest = shape.as_list()[1:] if shape.rank else []
        return array.zeros([0, *rest], self.dtype)

    def scatter(self, indices: Any, value: Tensor, name: str | None) -> Any:
        for index, row in zip(indices.numpy(), array.unstack(value), strict=True):
            self.write(index, row, name)
        return self.flow

    def unstack(self, value: Tensor, shape: TensorShape, name: str | None) -> Any:
        del shape
        rows = array.unstack(value)
        if len(rows) > len(self._values) and not self.dynamic_size:
            raise ValueError(
                f"Cannot unstack {len(rows)} tensors into a TensorArray of static size "
                f"{len(self._values)}"
            )
        for index, row in enumerate(rows):
            self.write(index, row, name)
        return self.flow

    def split(self, value: Tensor, lengths: Any, shape: TensorShape, name: str | None) -> Any:
        del shape
        sizes = lengths.numpy()
        if sizes.ndim != 1:
            raise InvalidArgumentError(
                None, None, f"Expected lengths to be a vector, received shape: {list(sizes.shape)}"
            )
        total = int(sizes.sum())
        if total != value.shape.as_list()[0]:
            raise InvalidArgumentError(
                None,
                None,
                "Expected sum of lengths to be equal to values.shape[0], but sum of lengths is "
                f"{total} and value's shape is: {value.shape}",
            )
        if not self.dynamic_size and len(sizes) != len(self._values):
            raise InvalidArgumentError(
                None,
                None,
                "TensorArray's size is not equal to the size of lengths "
                f"({len(self._values)} vs. {len(sizes)}), and the TensorArray is not marked as "
                "dynamically resizeable",
            )
        at = 0
        for index, size in enumerate(sizes):
            self.write(index, value[at : at + int(size)], name)
            at += int(size)
        return self.flow

    def size(self, name: str | None) -> Tensor:
        return convert_to_tensor(len(self._values), dtype=dtypes.int32, name=name)

    def close(self, name: str | None) -> Any:
        del name
        self._values.clear()


@export(v1="TensorArraySpec", v2="TensorArraySpec")
class TensorArraySpec:
    """What a TensorArray is: the type and shape of its elements, and whether it may grow."""

    def __init__(
        self, element_shape: Any = None, dtype: Any = dtypes.float32, dynamic_size: bool = False,
        infer_shape: bool = True,
    ):  # fmt: skip
        self._shape = TensorShape(element_shape)
        self._dtype = dtypes.as_dtype(dtype)
        self._dynamic_size = dynamic_size
        self._infer_shape = infer_shape

    @classmethod
    def from_value(cls, value: "TensorArray") -> "TensorArraySpec":
        """What an array is."""
        if not isinstance(value, TensorArray):
            raise TypeError(f"Expected `value` to be a `tf.TensorArray`, got {value!r}.")
        return cls(value.element_shape, value.dtype, bool(value.dynamic_size), value._infer_shape)

    @property
    def element_shape(self) -> TensorShape:
        """What is known of the shape of the elements."""
        return self._shape

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the elements."""
        return self._dtype

    @property
    def dynamic_size(self) -> bool:
        """Whether writing past the end makes the array longer."""
        return self._dynamic_size

    @property
    def infer_shape(self) -> bool:
        """Whether all elements have the shape of the first one."""
        return self._infer_shape

    @property
    def value_type(self) -> Any:
        """The class of the values."""
        return TensorArray

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether an array, or another spec, is of the type and may have the shape."""
        other = spec_or_value
        if isinstance(other, TensorArray):
            other = TensorArraySpec.from_value(other)
        return (
            isinstance(other, TensorArraySpec)
            and self._dtype.is_compatible_with(other._dtype)
            and self._shape.is_compatible_with(other._shape)
            and self._dynamic_size == other._dynamic_size
        )

    def _fields(self) -> tuple[Any, ...]:
        return str(self._shape), self._dtype, self._dynamic_size, self._infer_shape

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorArraySpec) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return (
            f"TensorArraySpec({self._shape}, {self._dtype!r}, {self._dynamic_size}, "
            f"{self._infer_shape})"
        )


@export(v1="TensorArray", v2="TensorArray")
class TensorArray:
    """Tensors of one type by index: written once each, read, stacked. For loops.

    Methods that write return a new TensorArray, to be used instead of the old one; it may be a loop
    variable and what a branch returns.

    Args:
      dtype: the type of the elements.
      size: how many elements there are (a number or int32 tensor).
      dynamic_size: writing past the end makes it longer.
      clear_after_read: an element is read once only, and its memory is free then (the default).
      tensor_array_name: a name for messages.
      handle, flow: of an array that is there already, instead of `size`.
      infer_shape: all elements have one shape, that of the first that is written.
      element_shape: the shape of all elements.

    ValueError without a size or handle, or with what contradicts a handle.
    """

    def __init__(
        self, dtype: Any, size: Any = None, dynamic_size: bool | None = None,
        clear_after_read: bool | None = None, tensor_array_name: str | None = None,
        handle: Any = None, flow: Any = None, infer_shape: bool = True, element_shape: Any = None,
        colocate_with_first_write_call: bool = True, name: str | None = None,
    ):  # fmt: skip
        del colocate_with_first_write_call
        if handle is not None:
            for given, label in (
                (tensor_array_name, "tensor_array_name"),
                (size, "size"),
                (dynamic_size, "dynamic_size"),
                (clear_after_read, "clear_after_read"),
            ):
                if given is not None:
                    raise ValueError(
                        f"Cannot provide both `handle` and `{label}` arguments at the same time."
                    )
            if not isinstance(handle, Tensor):
                raise TypeError(
                    f"Expected `handle` to be a Tensor, but got `{handle}` of type "
                    f"`{type(handle)}` instead."
                )
        elif size is None:
            raise ValueError(
                "Size must be declared explicitly: Argument `size` must be provided if handle is "
                "not provided."
            )
        self._infer_shape = bool(infer_shape) or element_shape is not None
        # Whether all elements have one shape: else they only have the one that is declared.
        self._one_shape = bool(infer_shape)
        # Shared by all arrays made from this one: a write tells the others the shape.
        self._known = [TensorShape(element_shape)]
        self._gradients: dict[str, _Handles] = {}
        dtype = dtypes.as_dtype(dtype).base_dtype
        if handle is not None:
            if handle.dtype is dtypes.variant:
                self._form: Any = _Lists(dtype, handle if flow is None else flow, False, True)
            else:
                if flow is None:
                    raise ValueError("a TensorArray from a handle needs its flow, too")
                self._form = _Handles(dtype, handle, flow)
            return
        if _core.executing_eagerly():
            self._form = _Values(
                dtype, int(size), bool(dynamic_size), clear_after_read is not False,
                lambda: self.element_shape,
            )  # fmt: skip
            return
        with name_scope(name, "TensorArray", [size]) as scope:
            shape = _shape_tensor(TensorShape(element_shape))
            size = convert_to_tensor(size, dtype=dtypes.int32, name="size")
            flow = gen_ops.tensor_list_reserve(shape, size, dtype, name=scope)
        self._form = _Lists(dtype, flow, bool(dynamic_size), clear_after_read is not False)
        self._form.array_name = f"{tensor_array_name or 'array'}_{flow.op.name}"

    @property
    def flow(self) -> Tensor:
        """The tensor that orders what is done with the array; a loop carries it."""
        return self._form.flow

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the elements."""
        return self._form.dtype

    @property
    def handle(self) -> Tensor:
        """The array as it was made."""
        return self._form.handle

    @property
    def element_shape(self) -> TensorShape:
        """What is known of the shape of all elements."""
        return self._known[0]

    @property
    def dynamic_size(self) -> bool | None:
        """Whether writing past the end makes it longer."""
        return self._form.dynamic_size

    @property
    def graph(self) -> Any:
        """The graph of its flow."""
        return self.flow.graph

    # What datasets need, whose elements are tensors.

    def _as_list(self) -> Tensor:
        """A tensor list with the elements. TypeError for an array that lives for a step."""
        if isinstance(self._form, _Handles):
            raise TypeError("a TensorArray with a handle of its own cannot be handed on")
        return self._form.as_list() if isinstance(self._form, _Values) else self._form.flow

    @staticmethod
    def _of_list(
        elements: Tensor, dtype: Any, element_shape: Any, dynamic_size: bool, infer_shape: bool
    ) -> "TensorArray":
        """An array with the elements of a tensor list."""
        made = TensorArray(
            dtype, 0, dynamic_size, clear_after_read=False, infer_shape=infer_shape,
            element_shape=element_shape,
        )  # fmt: skip
        if isinstance(made._form, _Values):
            made._form.fill(elements)
        else:
            made._form = made._form.with_flow(elements)
        return made

    # What branches and loops need.

    def _with_flow(self, flow: Tensor) -> "TensorArray":
        other = TensorArray.__new__(TensorArray)
        other._form = self._form.with_flow(flow)
        other._infer_shape = self._infer_shape
        other._one_shape = self._one_shape
        other._known = self._known
        other._gradients = self._gradients
        return other

    def _merge_element_shape(self, other: "TensorArray") -> None:
        """Learns the shape of the elements from an array that another branch or the body made."""
        if self._known is other._known or not self._infer_shape:
            return
        if self.element_shape.is_compatible_with(other.element_shape):
            self._known[0] = self.element_shape.merge_with(other.element_shape)
        else:
            self._known[0] = TensorShape(None)

    def _take_shape(self, shape: TensorShape) -> None:
        if not self._infer_shape:
            return
        if not self.element_shape.is_compatible_with(shape):
            raise ValueError(
                f"Inconsistent shapes: saw {shape} but expected {self.element_shape} (and "
                "infer_shape=True)"
            )
        if self._one_shape:
            self._known[0] = self.element_shape.merge_with(shape)

    def _value(self, value: Any, verb: str) -> Tensor:
        tensor = convert_to_tensor(value, preferred_dtype=self.dtype, name="value")
        if tensor.dtype.base_dtype is not self.dtype:
            raise InvalidArgumentError(
                None,
                None,
                f"TensorArray dtype is {_c_name(self.dtype)} but Op is trying to {verb} dtype "
                f"{_c_name(tensor.dtype.base_dtype)}.",
            )
        return tensor

    # Elements.

    def identity(self) -> "TensorArray":
        """The same array, behind the control dependencies that are open."""
        return self._with_flow(gen_ops.identity(self.flow))

    def grad(self, source: str, flow: Any = None, name: str | None = None) -> "TensorArray":
        """The array in which gradients of the elements are added up.

        `source`: tells several computations of gradients apart; the same one gives the same array.
        """
        form = self._form
        if isinstance(form, _Lists):
            root = self._gradients.get("")
            if root is None:
                handle, order = gen_ops.tensor_array_v3(
                    form.size(None), form.dtype, self.element_shape, form.dynamic_size, False,
                    self._infer_shape, form.array_name, name=None,
                )  # fmt: skip
                root = self._gradients[""] = _Handles(form.dtype, handle, order)
            form, flow = root, None
        made = self._gradients.get(source)
        if made is None:
            with name_scope(name, "TensorArrayGrad", [form.handle]):
                handle, order = gen_ops.tensor_array_grad_v3(
                    form.handle, form.flow if flow is None else flow, source
                )
                with_flow = gen_ops.identity(order, name="gradient_flow")
            made = self._gradients[source] = _Handles(form.dtype, handle, with_flow)
        other = TensorArray.__new__(TensorArray)
        other._form = made
        other._infer_shape = other._one_shape = False
        other._known = [self.element_shape]
        other._gradients = {}
        return other

    def read(self, index: Any, name: str | None = None) -> Tensor:
        """The element at `index`."""
        _check_index(index, "read from", self)
        value = self._form.read(index, self.element_shape, name or "TensorArrayRead")
        value.set_shape(self.element_shape)
        return value

    def write(self, index: Any, value: Any, name: str | None = None) -> "TensorArray":
        """The array with `value` at `index`, where nothing was yet.

        ValueError where shapes of elements differ and `infer_shape` is set.
        """
        with name_scope(name, "TensorArrayWrite", [self.flow, index, value]):
            tensor = self._value(value, "write")
            _check_index(index, "write to", self)
            self._take_shape(tensor.shape)
            return self._with_flow(self._form.write(index, tensor, "TensorArrayWrite"))

    def stack(self, name: str | None = None) -> Tensor:
        """All elements as one tensor with a row for each."""
        with name_scope(name, "TensorArrayStack", [self.flow]):
            value = self._form.stack(self.element_shape, "TensorArrayStack")
        return self._set_rows(value)

    def gather(self, indices: Any, name: str | None = None) -> Tensor:
        """The elements at `indices` as one tensor with a row for each."""
        with name_scope(name, "TensorArrayGather", [self.flow, indices]):
            indices = convert_to_tensor(indices, dtype=dtypes.int32)
            value = self._form.gather(indices, self.element_shape, "TensorArrayGather")
        return self._set_rows(value)

    def _set_rows(self, value: Tensor) -> Tensor:
        if self.element_shape.rank is not None:
            value.set_shape([None, *self.element_shape.as_list()])
        return value

    def concat(self, name: str | None = None) -> Tensor:
        """All elements joined along their first dimension."""
        with name_scope(name, "TensorArrayConcat", [self.flow]):
            value = self._form.concat(self.element_shape, "TensorArrayConcat")
        if self.element_shape.rank:
            value.set_shape([None, *self.element_shape.as_list()[1:]])
        return value

    def unstack(self, value: Any, name: str | None = None) -> "TensorArray":
        """The array with the rows of `value` at 0, 1, ..."""
        with name_scope(name, "TensorArrayUnstack", [self.flow, value]):
            tensor = self._value(value, "unstack")
            if tensor.shape.rank == 0:
                raise ValueError(f"a scalar has no rows to unstack: {tensor}")
            if tensor.shape.rank is not None:
                self._take_shape(TensorShape(tensor.shape.as_list()[1:]))
            declared = self.element_shape if self._infer_shape else TensorShape(None)
            return self._with_flow(self._form.unstack(tensor, declared, "TensorArrayUnstack"))

    def scatter(self, indices: Any, value: Any, name: str | None = None) -> "TensorArray":
        """The array with the rows of `value` at `indices`."""
        with name_scope(name, "TensorArrayScatter", [self.flow, value, indices]):
            tensor = self._value(value, "scatter")
            if tensor.shape.rank:
                self._take_shape(TensorShape(tensor.shape.as_list()[1:]))
            indices = convert_to_tensor(indices, dtype=dtypes.int32)
            return self._with_flow(self._form.scatter(indices, tensor, "TensorArrayScatter"))

    def split(self, value: Any, lengths: Any, name: str | None = None) -> "TensorArray":
        """The array with the pieces of `value`, cut along its first dimension, `lengths` long."""
        with name_scope(name, "TensorArraySplit", [self.flow, value, lengths]):
            tensor = self._value(value, "split")
            lengths = convert_to_tensor(lengths, name="lengths")
            if lengths.dtype.base_dtype is not dtypes.int64:
                lengths = gen_ops.cast(lengths, dtypes.int64)
            if tensor.shape.rank == 0:
                raise InvalidArgumentError(
                    None,
                    None,
                    "Expected value to be at least a vector, but received shape: []",
                )
            piece = TensorShape(None)
            if tensor.shape.rank is not None and self._infer_shape:
                known = constant_value(lengths)
                if known is not None and known.size and (known == known.flat[0]).all():
                    piece = TensorShape([int(known.flat[0]), *tensor.shape.as_list()[1:]])
                    self._take_shape(piece)
            size = self._static_size()
            pieces = lengths.shape.as_list()[0] if lengths.shape.rank == 1 else None
            if size is not None and pieces is not None and size != pieces and not self.dynamic_size:
                known = constant_value(lengths)
                rows = tensor.shape.as_list()[0] if tensor.shape.rank else None
                total = None if known is None else int(known.sum())
                if total is None or rows is None or total == rows:
                    raise InvalidArgumentError(
                        None,
                        None,
                        "TensorArray's size is not equal to the size of lengths "
                        f"({size} vs. {pieces}), and the TensorArray is not marked as dynamically "
                        "resizeable",
                    )
            return self._with_flow(self._form.split(tensor, lengths, piece, "TensorArraySplit"))

    def _static_size(self) -> int | None:
        if isinstance(self._form, _Values):
            return len(self._form._values)
        op = self._form.flow.op
        if op.type != "TensorListReserve":
            return None
        size = constant_value(op.inputs[1])
        return None if size is None else int(size)

    def size(self, name: str | None = None) -> Tensor:
        """How many elements there are."""
        return self._form.size(name or "TensorArraySize")

    def close(self, name: str | None = None) -> Operation:
        """An operation that frees the elements, where that does not happen by itself."""
        return self._form.close(name or "TensorArrayClose")


_C_NAMES = {"float32": "float", "float64": "double", "float16": "half", "bool": "bool"}


def _c_name(dtype: dtypes.DType) -> str:
    return _C_NAMES.get(dtype.name, dtype.name)


def _check_index(index: Any, verb: str, array: TensorArray) -> None:
    """A negative index that is known now is an error now."""
    if isinstance(array._form, _Values):
        return
    known = constant_value(index) if not isinstance(index, int) else index
    if known is None or isinstance(known, Tensor) or int(known) >= 0:
        return
    size = array._static_size()
    size_text = "not known yet" if size is None else str(size)
    how = "array size is" if verb == "read from" else "array is not resizeable and size is"
    raise InvalidArgumentError(
        None, None, f"Tried to {verb} index {int(known)} but {how}: {size_text}"
    )
