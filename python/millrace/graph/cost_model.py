"""What the nodes of a run cost: the `cost_graph` of its RunMetadata."""

from typing import Any

from millrace import protos
from millrace.core.tensor import Tensor


class CostModel:
    """Which runs of a session tell what they cost.

    ConfigProto's `graph_options.build_cost_model`: every how many of the runs that ask for
    metadata, 0 for none, after the first `build_cost_model_after` of them.
    """

    def __init__(self, config: Any):
        options = config.graph_options if config is not None else protos.GraphOptions()
        self._every = int(options.build_cost_model)
        self._runs = -int(options.build_cost_model_after)

    def is_due(self) -> bool:
        """Counts a run; true when that one tells."""
        if self._every <= 0:
            return False
        self._runs += 1
        return self._runs > 0 and self._runs % self._every == 0


def cost_graph(graph: Any, step_stats: Any) -> Any:
    """The operations of the graph that a traced run ran, as a CostGraphDef: where, for how many
    microseconds, after which others, and what they made as far as shapes are known."""
    places: dict[str, str] = {}
    micros: dict[str, int] = {}
    for device in step_stats.dev_stats:
        for stats in device.node_stats:
            name = stats.node_name
            if graph._find(name) >= 0:
                places[name] = device.device
                micros[name] = micros.get(name, 0) + stats.op_end_rel_micros
    ids = {name: i for i, name in enumerate(places)}
    out = protos.CostGraphDef()
    for name, i in ids.items():
        op = graph.get_operation_by_name(name)
        node = out.node.add(name=name, device=places[name], id=i, compute_cost=micros[name])
        for tensor in op.inputs:
            if tensor.op.name in ids:
                node.input_info.add(
                    preceding_node=ids[tensor.op.name], preceding_port=tensor.value_index
                )
        node.control_input.extend(ids[c.name] for c in op.control_inputs if c.name in ids)
        for tensor in op.outputs:
            node.output_info.add(
                size=_bytes(tensor), alias_input_port=-1, shape=tensor.shape.as_proto(),
                dtype=tensor.dtype.base_dtype.as_datatype_enum,
            )  # fmt: skip
    return out


def _bytes(tensor: Tensor) -> int:
    """-1 where it is not known."""
    count = tensor.shape.num_elements()
    return -1 if count is None else count * tensor.dtype.base_dtype.size
