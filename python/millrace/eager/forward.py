"""ForwardAccumulator: derivatives in the direction of the computation."""

from typing import Any

from millrace import _core, gen_ops
from millrace.core import nest
from millrace.core.export import export
from millrace.core.logging import warn
from millrace.eager.tape import graph_tape, source_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.gradients import UnconnectedGradients
from millrace.graph.sparse import IndexedSlices


@export(v2="autodiff.ForwardAccumulator")
class ForwardAccumulator:
    """Jacobian-vector products of what runs inside.

    `with ForwardAccumulator(x, v) as acc: y = f(x)`; then `acc.jvp(y)` is the derivative of y when
    x moves in the direction v.

    Args:
      primals: a tensor or variable, or a structure of them.
      tangents: the directions, in the same structure.
    """

    def __init__(self, primals: Any, tangents: Any):
        nest.assert_same_structure(primals, tangents)
        self._sources, self._tangents = [], []
        eager = _core.executing_eagerly()
        # What the products are made of are gradients, twice: of y by x, and of that by the gradient
        # that comes in. So what runs inside is recorded, as a tape does.
        self._tape: Any = _core.Tape(True, False) if eager else graph_tape()
        for primal, tangent in zip(nest.flatten(primals), nest.flatten(tangents), strict=True):
            source = source_of(primal)
            dtype = primal.dtype if hasattr(primal, "dtype") else source.dtype
            if not (dtype.is_floating or dtype.is_complex):
                warn(
                    "The dtype of the watched primal must be floating (e.g. tf.float32), got "
                    f"{dtype!r}"
                )
                continue
            tangent = convert_to_tensor(tangent, dtype=dtype)
            shape = primal.shape if hasattr(primal, "shape") else source.shape
            if not shape.is_compatible_with(tangent.shape):
                raise ValueError(
                    f"the tangent of a primal of shape {shape} must have that shape, got "
                    f"{tangent.shape}"
                )
            if any(known is source for known in self._sources):
                raise ValueError(
                    f"Tensor {primal} was specified as a primal multiple times. This may indicate "
                    "an error. If it was intended, please sum the corresponding tangents."
                )
            self._sources.append(source)
            self._tangents.append(tangent)
            self._tape.watch(source)
        self._recording = False

    def __enter__(self) -> "ForwardAccumulator":
        if self._recording:
            raise ValueError("Accumulator is already recording.")
        self._tape.start()
        self._recording = True
        return self

    def __exit__(self, *_: Any) -> None:
        if not self._recording:
            raise ValueError("Accumulator is not recording.")
        self._tape.stop()
        self._recording = False

    def jvp(self, primals: Any, unconnected_gradients: Any = UnconnectedGradients.NONE) -> Any:
        """The products for what was computed inside, in its structure: None where it does not
        depend on a primal, or zeros with UnconnectedGradients.ZERO."""
        unconnected = getattr(unconnected_gradients, "value", unconnected_gradients)
        if unconnected not in (UnconnectedGradients.NONE, UnconnectedGradients.ZERO):
            raise ValueError(f"Unknown value for unconnected_gradients: {unconnected_gradients!r}")
        if self._recording:
            self._tape.stop()
        try:
            found = [self._product(y, unconnected) for y in nest.flatten(primals)]
        finally:
            if self._recording:
                self._tape.start()
        return nest.pack_sequence_as(primals, found)

    def _product(self, value: Any, unconnected: str) -> Any:
        y = source_of(value)
        for source, tangent in zip(self._sources, self._tangents, strict=True):
            if source is y:
                return tangent
        if y.dtype.name == "resource":  # a variable that is no primal
            y = convert_to_tensor(value)
        product = None
        if y.dtype.is_floating or y.dtype.is_complex:
            product = self._transposed_twice(y)
        if product is None and unconnected == UnconnectedGradients.ZERO:
            return gen_ops.zeros_like(y)
        return product

    def _transposed_twice(self, y: Any) -> Any:
        eager = _core.executing_eagerly()
        inner: Any = _core.Tape(False, False) if eager else graph_tape()
        incoming = gen_ops.zeros_like(y)
        inner.start()
        try:
            inner.watch(incoming)
            found = self._tape.gradient([y], self._sources, [incoming], False)
            dense = [
                convert_to_tensor(IndexedSlices(*g)) if isinstance(g, tuple) else g for g in found
            ]
        finally:
            inner.stop()
        linear = [(g, t) for g, t in zip(dense, self._tangents, strict=True) if g is not None]
        if not linear:
            return None
        product = inner.gradient([g for g, _ in linear], [incoming], [t for _, t in linear], False)
        return product[0]
