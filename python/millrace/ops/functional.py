"""Functions over the rows of tensors: map_fn, scan, foldl, foldr."""

from typing import Any, Callable

from millrace import gen_ops
from millrace.core import dtypes, nest
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.specs import TensorSpec
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor
from millrace.graph.sparse_spec import SparseTensorSpec
from millrace.ops import array, loops
from millrace.ops.tensor_array import TensorArray


class _SparseRows:
    """The rows of a sparse tensor, read by index."""

    def __init__(self, whole: SparseTensor):
        self.dtype = whole.dtype.base_dtype
        self._rank = whole.shape.rank
        # One row of three variants for each row: its indices, values and shape.
        self.tensor = gen_ops.serialize_many_sparse(
            whole.indices, whole.values, whole.dense_shape, dtypes.variant
        )

    def of(self, row: Tensor) -> SparseTensor:
        """The sparse tensor of what was read."""
        parts = gen_ops.deserialize_sparse(row, self.dtype)
        if self._rank is not None:
            parts[0].set_shape([None, self._rank - 1])
        return SparseTensor(*parts)


class _Rows:
    """The rows of a structure of tensors, dense, sparse and ragged ones, read by index."""

    def __init__(self, elems: Any):
        self.structure = elems
        self._leaves: list[Any] = []
        self.tensors = []
        for leaf in nest.flatten(elems):
            if isinstance(leaf, SparseTensor):
                self._leaves.append(_SparseRows(leaf))
                self.tensors.append(self._leaves[-1].tensor)
            elif is_ragged(leaf):
                self._leaves.append(leaf)
                self.tensors.append(leaf.row_lengths())
            else:
                self._leaves.append(None)
                self.tensors.append(convert_to_tensor(leaf, name="elem"))
        if not self.tensors:
            raise ValueError(
                "elems must be a Tensor or (possibly nested) sequence of Tensors. Got "
                f"{elems}, which does not contain any Tensors."
            )
        count: Any = None
        for tensor in self.tensors:
            if tensor.shape.rank == 0:
                raise ValueError(
                    f"elems must have rows, at least one dimension: {tensor} is a scalar"
                )
            rows = tensor.shape.as_list()[0] if tensor.shape.rank else None
            if count is not None and rows is not None and rows != count:
                raise ValueError(
                    "elems must have as many rows each, got "
                    + " and ".join(f"{t.shape} ({t.dtype.base_dtype.name})" for t in self.tensors)
                )
            count = rows if rows is not None else count
        self.static_count: int | None = count
        self.count: Any = array.shape(self.tensors[0])[0] if count is None else count
        self.arrays = [
            TensorArray(
                tensor.dtype.base_dtype, self.count, dynamic_size=False, clear_after_read=False,
                infer_shape=True,
            ).unstack(tensor)
            for tensor in self.tensors
        ]  # fmt: skip

    def row(self, i: Any) -> Any:
        """The structure of row i."""
        rows: list[Any] = []
        for leaf, one in zip(self._leaves, self.arrays, strict=True):
            if is_ragged(leaf):
                rows.append(leaf[i])
            else:
                row = one.read(i)
                rows.append(row if leaf is None else leaf.of(row))
        return nest.pack_sequence_as(self.structure, rows)

    def results(self) -> list["_Results"]:
        """What gathers results like the rows."""
        out: list[_Results] = []
        for leaf, tensor in zip(self._leaves, self.tensors, strict=True):
            if is_ragged(leaf):
                out.append(_RaggedResults(leaf.dtype, leaf.ragged_rank, leaf.row_splits.dtype))
            elif leaf is not None:
                out.append(_SparseResults(leaf.dtype))
            else:
                out.append(_Results(tensor.dtype.base_dtype))
        return out


class _Results:
    """Gathers what a function gives for each row: tensors, as the rows of a tensor."""

    def __init__(self, dtype: dtypes.DType):
        self.dtype = dtype

    def arrays(self, count: Any, infer_shape: bool) -> list[TensorArray]:
        """Where they are kept."""
        return [TensorArray(self.dtype, count, dynamic_size=False, infer_shape=infer_shape)]

    def parts(self, value: Any) -> list[Any]:
        """What is kept of one."""
        return [_typed(value, self.dtype, "fn")]

    def whole(self, arrays: list[TensorArray], count: int | None) -> Any:
        """All of them."""
        rows = arrays[0].stack()
        if rows.shape.rank is not None:
            rows.set_shape([count, *rows.shape.as_list()[1:]])
        return rows


class _SparseResults(_Results):
    """The same for sparse tensors."""

    def arrays(self, count: Any, infer_shape: bool) -> list[TensorArray]:
        del infer_shape
        return [TensorArray(dtypes.variant, count, dynamic_size=False, infer_shape=True)]

    def parts(self, value: Any) -> list[Any]:
        if not isinstance(value, SparseTensor):
            raise TypeError(f"fn must return a SparseTensor, got {value!r}")
        return [
            gen_ops.serialize_sparse(
                value.indices, _typed(value.values, self.dtype, "fn"), value.dense_shape,
                dtypes.variant,
            )
        ]  # fmt: skip

    def whole(self, arrays: list[TensorArray], count: int | None) -> Any:
        return SparseTensor(*gen_ops.deserialize_sparse(arrays[0].stack(), self.dtype))


class _RaggedResults(_Results):
    """The same for tensors of different lengths, and for ragged ones."""

    def __init__(self, dtype: dtypes.DType, ragged_rank: int, splits: dtypes.DType):
        super().__init__(dtype)
        self._rank, self._splits = ragged_rank, splits

    def arrays(self, count: Any, infer_shape: bool) -> list[TensorArray]:
        del infer_shape
        kinds = [self.dtype, *[self._splits] * self._rank]
        return [TensorArray(kind, count, infer_shape=False) for kind in kinds]

    def parts(self, value: Any) -> list[Any]:
        rank = value.ragged_rank if is_ragged(value) else 0
        if rank != self._rank - 1:
            raise ValueError(
                f"fn must return a tensor of ragged rank {self._rank - 1}, got {value!r}"
            )
        if rank == 0:
            flat = _typed(value, self.dtype, "fn")
            if flat.shape.ndims == 0:
                raise ValueError(
                    "fn has given a scalar, but rows of a ragged tensor have a dimension at least: "
                    "say with fn_output_signature what it gives"
                )
            return [flat, gen_ops.cast(array.shape(flat)[0], self._splits)]
        lengths = value.nested_row_lengths()
        return [
            _typed(value.flat_values, self.dtype, "fn"),
            gen_ops.cast(array.shape(lengths[0])[0], self._splits),
            *(gen_ops.cast(one, self._splits) for one in lengths),
        ]

    def whole(self, arrays: list[TensorArray], count: int | None) -> Any:
        from millrace.ops.ragged.tensor import RaggedTensor  # late: most programs have none

        flat, lengths, *rest = arrays
        return RaggedTensor.from_nested_row_lengths(
            flat.concat(), [lengths.stack(), *(one.concat() for one in rest)], validate=False
        )


def is_ragged(value: Any) -> bool:
    """Whether a value is a ragged tensor."""
    return hasattr(value, "row_lengths") and hasattr(value, "flat_values")


def _results_like(signature: Any) -> _Results:
    """What gathers results of a type, or like a spec."""
    if hasattr(signature, "ragged_rank"):
        # One more dimension is ragged in all than in each.
        rank, splits = signature.ragged_rank + 1, signature.row_splits_dtype
        return _RaggedResults(signature.dtype, rank, splits)
    if isinstance(signature, SparseTensorSpec):
        return _SparseResults(signature.dtype)
    dtype = signature.dtype if isinstance(signature, TensorSpec) else dtypes.as_dtype(signature)
    return _Results(dtype.base_dtype)


def _check_callable(fn: Any) -> None:
    if not callable(fn):
        raise TypeError(f"fn must be callable: {fn!r} is a {type(fn).__name__}")


def _flat_like(structure: Any, value: Any, what: str) -> list[Any]:
    try:
        nest.assert_same_structure(structure, value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what}: {error}") from None
    return nest.flatten(value)


def _stack(arrays: list[TensorArray], count: int | None, structure: Any) -> Any:
    """The arrays' elements as rows, and what is known of their shape."""
    out = []
    for one in arrays:
        rows = one.stack()
        if rows.shape.rank is not None:
            rows.set_shape([count, *rows.shape.as_list()[1:]])
        out.append(rows)
    return nest.pack_sequence_as(structure, out)


@export(v1="map_fn", v2="map_fn")
def map_fn(
    fn: Callable[[Any], Any], elems: Any, dtype: Any = None,
    parallel_iterations: int | None = None, back_prop: bool = True, swap_memory: bool = False,
    infer_shape: bool = True, name: str | None = None, fn_output_signature: Any = None,
) -> Any:  # fmt: skip
    """The results of `fn` on each row of `elems`, as rows.

    Args:
      fn: a function of a row (of a structure like `elems`), called once to build the loop.
      elems: a tensor, or a structure of tensors with as many rows.
      dtype: the type of fn's result, or the structure of the types of several; needed where they
        are not those of `elems`. `fn_output_signature`: the same, or specs: a SparseTensorSpec, or
        a RaggedTensorSpec of each result, of which ragged rows are made.
      infer_shape: all results have one shape.

    TypeError where `fn` is no function or gives other types, ValueError for other structures.
    """
    _check_callable(fn)
    dtype = fn_output_signature if fn_output_signature is not None else dtype
    with name_scope(name, "map", nest.flatten(elems)):
        rows = _Rows(elems)
        if dtype is None:
            structure = elems
            results = rows.results()
        else:
            structure = dtype
            results = [_results_like(t) for t in nest.flatten(dtype)]
        kept = [one.arrays(rows.count, infer_shape) for one in results]

        def compute(i: Tensor, kept: list[list[TensorArray]]) -> Any:
            value = fn(rows.row(i))
            flat = _flat_like(structure, value, "fn must return a structure like dtype or elems")
            written = []
            for one, arrays, leaf in zip(results, kept, flat, strict=True):
                parts = one.parts(leaf)
                written.append([a.write(i, part) for a, part in zip(arrays, parts, strict=True)])
            return i + 1, written

        _, kept = loops.while_loop(
            lambda i, _: i < rows.count, compute, (0, kept),
            parallel_iterations=parallel_iterations or 10, back_prop=back_prop,
            swap_memory=swap_memory, name="while",
        )  # fmt: skip
        wholes = [
            one.whole(arrays, rows.static_count) for one, arrays in zip(results, kept, strict=True)
        ]
        return nest.pack_sequence_as(structure, wholes)


def _typed(value: Any, dtype: dtypes.DType, what: str) -> Tensor:
    tensor = convert_to_tensor(value, preferred_dtype=dtype)
    if tensor.dtype.base_dtype is not dtype:
        raise TypeError(
            f"{what} must return {dtype.name}, got {tensor.dtype.base_dtype.name} of shape "
            f"{tensor.shape} ('{label_of(tensor)}'): say so with dtype"
        )
    return tensor


@export(v1="scan", v2="scan")
def scan(
    fn: Callable[[Any, Any], Any], elems: Any, initializer: Any = None,
    parallel_iterations: int = 10, back_prop: bool = True, swap_memory: bool = False,
    infer_shape: bool = True, reverse: bool = False, name: str | None = None,
) -> Any:  # fmt: skip
    """All accumulators that `fn(accumulator, row)` makes on the way through the rows of `elems`.

    Args:
      fn: gives the next accumulator, a structure like the one before.
      elems: a tensor, or a structure of tensors with as many rows.
      initializer: the first accumulator; the first row without one, which is then the first result.
      infer_shape: all accumulators have one shape.
      reverse: go from the last row to the first.
    """
    _check_callable(fn)
    with name_scope(name, "scan", nest.flatten(elems)):
        rows = _Rows(elems)
        count = rows.count
        if initializer is None:
            first = count - 1 if reverse else 0
            structure = elems
            start = [a.read(first) for a in rows.arrays]
            begin = 1
        else:
            structure = initializer
            start = [convert_to_tensor(v) for v in nest.flatten(initializer)]
            begin = 0
        results = [
            TensorArray(
                a.dtype.base_dtype, count, dynamic_size=False, infer_shape=infer_shape,
                element_shape=a.shape if infer_shape else None, clear_after_read=False,
            )
            for a in start
        ]  # fmt: skip
        if initializer is None:
            results = [r.write(first, a) for r, a in zip(results, start, strict=True)]

        def compute(i: Tensor, state: list[Tensor], arrays: list[TensorArray]) -> Any:
            value = fn(nest.pack_sequence_as(structure, list(state)), rows.row(i))
            flat = _flat_like(
                structure, value, "fn must return a structure like initializer or elems"
            )
            flat = [_typed(v, s.dtype.base_dtype, "fn") for v, s in zip(flat, state, strict=True)]
            arrays = [one.write(i, v) for one, v in zip(arrays, flat, strict=True)]
            return (i - 1 if reverse else i + 1), flat, arrays

        where: Any = count - 1 - begin if reverse else begin
        shapes = None
        if not infer_shape:
            shapes = (
                TensorShape([]),
                [TensorShape(None)] * len(start),
                [TensorShape(None)] * len(results),
            )
        _, _, results = loops.while_loop(
            lambda i, *_: i >= 0 if reverse else i < count, compute, (where, start, results),
            shape_invariants=shapes, parallel_iterations=parallel_iterations, back_prop=back_prop,
            swap_memory=swap_memory, name="while",
        )  # fmt: skip
        return _stack(results, rows.static_count, structure)


def _fold(
    fn: Callable[[Any, Any], Any], elems: Any, initializer: Any, parallel_iterations: int,
    back_prop: bool, swap_memory: bool, name: str | None, default_name: str, reverse: bool,
) -> Any:  # fmt: skip
    _check_callable(fn)
    with name_scope(name, default_name, nest.flatten(elems)):
        rows = _Rows(elems)
        count = rows.count
        if initializer is None:
            start = rows.row(count - 1 if reverse else 0)
            begin = 1
        else:
            start = nest.map_structure(convert_to_tensor, initializer)
            begin = 0
        where: Any = count - 1 - begin if reverse else begin

        def compute(i: Tensor, state: Any) -> Any:
            return (i - 1 if reverse else i + 1), fn(state, rows.row(i))

        _, result = loops.while_loop(
            lambda i, _: i >= 0 if reverse else i < count, compute, (where, start),
            parallel_iterations=parallel_iterations, back_prop=back_prop, swap_memory=swap_memory,
            name="while",
        )  # fmt: skip
        return result


@export(v1="foldl", v2="foldl")
def foldl(
    fn: Callable[[Any, Any], Any], elems: Any, initializer: Any = None,
    parallel_iterations: int = 10, back_prop: bool = True, swap_memory: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """The last accumulator of `fn(accumulator, row)` over the rows of `elems`, from the first on.

    `initializer`: the first accumulator; the first row without one.
    """
    return _fold(
        fn, elems, initializer, parallel_iterations, back_prop, swap_memory, name, "foldl", False
    )


@export(v1="foldr", v2="foldr")
def foldr(
    fn: Callable[[Any, Any], Any], elems: Any, initializer: Any = None,
    parallel_iterations: int = 10, back_prop: bool = True, swap_memory: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """As `foldl`, from the last row to the first."""
    return _fold(
        fn, elems, initializer, parallel_iterations, back_prop, swap_memory, name, "foldr", True
    )
