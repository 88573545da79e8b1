"""Objects as a graph of names, as checkpoints have it: the message, and tensors with keys."""

from typing import Any, Callable, NamedTuple

from millrace import gen_ops, protos
from millrace.core import errors
from millrace.core.tensor import Tensor
from millrace.core.trackable import Trackable
from millrace.graph.convert import convert_to_tensor

OBJECT_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"


def escaped(name: str) -> str:
    """A local name as it stands in a key: without slashes, and never like what is reserved."""
    return name.replace(".", "..").replace("/", ".S")


class Value(NamedTuple):
    """A tensor of an object: the attribute that it is or belongs to, with its key, its own key in
    the file, and how it is called elsewhere."""

    name: str
    attribute_key: str
    key: str
    full_name: str
    tensor: Any
    slice_spec: str
    optional: bool


class ObjectGraph:
    """A root with all objects below it.

    Args:
      root: where names begin.
      attached: more children of the root, or a function that gives them for those it has.
      save_type: "savedmodel" for the children that a SavedModel has, functions among them.
    """

    def __init__(
        self, root: Trackable,
        attached: dict[str, Trackable] | Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        save_type: str = "checkpoint",
    ):  # fmt: skip
        self.objects: list[Any] = [root]
        self.ids: dict[int, int] = {id(root): 0}
        self.paths = [""]
        self.children: list[dict[str, Any]] = []
        # (node of an optimizer, node of a variable, name, node of the slot)
        self.slots: list[tuple[int, int, str, int]] = []
        for at in self.objects:
            children = at._trackable_children(save_type)
            if at is root and attached:
                children.update(attached(children) if callable(attached) else attached)
            self.children.append(children)
            path = self.paths[self.ids[id(at)]]
            for name, child in children.items():
                self._add(child, f"{path}/{escaped(name)}" if path else escaped(name))
        for owner in list(self.objects):
            self._add_slots(owner)

    def _add(self, target: Any, path: str) -> int:
        known = self.ids.get(id(target))
        if known is not None:
            return known
        if not isinstance(target, Trackable):
            raise TypeError(f"cannot save {path!r}: {target!r} is no trackable object")
        self.ids[id(target)] = len(self.objects)
        self.objects.append(target)
        self.paths.append(path)
        return len(self.objects) - 1

    def add(self, target: Any, path: str = "") -> int:
        """The node of an object that is none's child; it has no children either."""
        node = self._add(target, path)
        if node == len(self.children):
            self.children.append({})
        return node

    def _add_slots(self, owner: Any) -> None:
        node = self.ids[id(owner)]
        for variable, name, slot in owner._slots_to_save():
            original = self.ids.get(id(variable))
            if original is None:
                continue  # a variable that is not below the root
            base, own = self.paths[original], self.paths[node]
            path = "/".join(filter(None, (base, ".OPTIMIZER_SLOT", own, escaped(name))))
            slot_node = self.add(slot, path)
            self.slots.append((node, original, name, slot_node))

    def values(self, node: int) -> list[Value]:
        """The tensors of an object, with their keys."""
        target, path = self.objects[node], self.paths[node]
        prefix = f"{path}/.ATTRIBUTES/"
        return [
            Value(
                name, prefix + escaped(name), prefix + suffix, full_name, tensor, slices, optional
            )
            for name, suffix, full_name, tensor, slices, optional in _values_of(target)
        ]

    def message(self) -> tuple[Any, list[Value]]:
        """The TrackableObjectGraph, and all tensors."""
        graph = protos.TrackableObjectGraph()
        tensors: list[Value] = []
        for node, children in enumerate(self.children):
            written = graph.nodes.add()
            for name, child in children.items():
                written.children.add(node_id=self.ids[id(child)], local_name=name)
            named: set[str] = set()
            for value in self.values(node):
                tensors.append(value)
                if value.name in named:
                    continue  # one attribute of several tensors
                named.add(value.name)
                written.attributes.add(
                    name=value.name,
                    full_name=value.full_name,
                    checkpoint_key=value.attribute_key,
                )
        for owner, original, name, slot in self.slots:
            graph.nodes[owner].slot_variables.add(
                original_variable_node_id=original, slot_name=name, slot_variable_node_id=slot
            )
        for node, has in enumerate(self._reach_values(graph)):
            graph.nodes[node].has_checkpoint_values.value = has
        return graph, tensors

    def _reach_values(self, graph: Any) -> list[bool]:
        """For each node, whether it or something below it has values."""
        parents: list[list[int]] = [[] for _ in graph.nodes]
        for node, written in enumerate(graph.nodes):
            for child in written.children:
                parents[child.node_id].append(node)
        reached = [bool(written.attributes) for written in graph.nodes]
        todo = [node for node, has in enumerate(reached) if has]
        while todo:
            for parent in parents[todo.pop()]:
                if not reached[parent]:
                    reached[parent] = True
                    todo.append(parent)
        return reached


def _values_of(target: Any) -> list[tuple[str, str, str, Any, str, bool]]:
    """[(attribute, end of the key, name elsewhere, tensor, slice, optional)] of an object."""
    out: list[tuple[str, str, str, Any, str, bool]] = []
    if target._saves_tensors():
        own = getattr(target, "_shared_name", "") or ""
        whole = target._attribute_name
        for name, tensor in target._serialize_to_tensors().items():
            end = escaped(name) if whole is None else escaped(whole) + name
            parts = tensor if isinstance(tensor, dict) else {"": tensor}
            for slices, part in parts.items():
                out.append((whole or name, end, own, part, slices, False))
        return out
    for name, saveable in saveables_of(target).items():
        for spec, key in zip(saveable.specs, spec_keys(name, saveable), strict=True):
            tensor = spec.tensor
            out.append((name, key, saveable.name, tensor, spec.slice_spec, False))
    return out


def saveables_of(target: Any) -> dict[str, Any]:
    """The SaveableObjects of an object, by attribute."""
    made = {}
    for name, factory in target._gather_saveables_for_checkpoint().items():
        made[name] = factory(name=escaped(name)) if callable(factory) else factory
    return made


def spec_keys(name: str, saveable: Any) -> list[str]:
    """The ends of the keys of a SaveableObject's tensors."""
    own = escaped(name)
    keys = []
    for spec in saveable.specs:
        # A spec's name begins with that of its saveable.
        rest = spec.name[len(saveable.name) :] if spec.name.startswith(saveable.name) else ""
        keys.append(own + rest)
    return keys


def write(prefix: Any, objects: ObjectGraph) -> Any:
    """Writes the objects to a checkpoint. Gives the operation, or None where it ran at once."""
    graph, values = objects.message()
    names = [value.key for value in values]
    slices = [value.slice_spec for value in values]
    tensors = [_tensor(value) for value in values]
    names.append(OBJECT_GRAPH_KEY)
    slices.append("")
    tensors.append(convert_to_tensor(graph.SerializeToString()))
    return gen_ops.save_v2(convert_to_tensor(prefix), names, slices, tensors)


def _tensor(value: Value) -> Tensor:
    tensor = value.tensor() if callable(value.tensor) else value.tensor
    try:
        return convert_to_tensor(tensor)
    except (TypeError, ValueError) as error:
        raise TypeError(f"cannot save {value.key!r}: {error}") from error


def read_graph(reader: Any, prefix: str) -> Any:
    """The TrackableObjectGraph of a checkpoint; None for one that was saved by names.

    DataLossError, with the file and what is wrong, for a damaged one.
    """
    if not reader.has_tensor(OBJECT_GRAPH_KEY):
        return None

    def damaged(why: str) -> errors.DataLossError:
        return errors.DataLossError(
            None, None, f"{prefix}.index: the graph of objects is damaged: {why}"
        )

    content = reader.get_tensor(OBJECT_GRAPH_KEY)
    if not isinstance(content, bytes):
        raise damaged(f"{OBJECT_GRAPH_KEY} must be a scalar string, got {content!r:.100}")
    try:
        graph = protos.TrackableObjectGraph.FromString(content)
    except protos.DecodeError as error:
        raise damaged(f"it is no TrackableObjectGraph ({error})") from None
    check_references(graph, damaged)
    return graph


def check_references(graph: Any, damaged: Callable[[str], Exception]) -> None:
    """Raises damaged(why) unless every node that the graph speaks of is there."""
    count = len(graph.nodes)
    if count == 0:
        raise damaged("it has no nodes, expected at least the root")

    def check(number: int, what: str) -> None:
        if not 0 <= number < count:
            raise damaged(f"{what} is node {number}, expected one of 0 to {count - 1}")

    for node, written in enumerate(graph.nodes):
        for child in written.children:
            check(child.node_id, f"child {child.local_name!r} of node {node}")
        for slot in written.slot_variables:
            check(slot.original_variable_node_id, f"the variable of a slot of node {node}")
            check(slot.slot_variable_node_id, f"slot {slot.slot_name!r} of node {node}")


def graph_paths(graph: Any) -> list[str]:
    """The path of each node of a message, "(root).a.b"; of one that nothing names, its number."""
    paths: list[str | None] = [None] * len(graph.nodes)
    paths[0] = "(root)"
    todo = [0]
    for at in todo:
        for child in graph.nodes[at].children:
            if paths[child.node_id] is None:
                paths[child.node_id] = f"{paths[at]}.{child.local_name}"
                todo.append(child.node_id)
    for at in range(len(graph.nodes)):
        for slot in graph.nodes[at].slot_variables:
            if paths[slot.slot_variable_node_id] is None:
                original = paths[slot.original_variable_node_id]
                paths[slot.slot_variable_node_id] = (
                    f"{paths[at]}'s state '{slot.slot_name}' for {original}"
                )
    return [path or f"node {node}" for node, path in enumerate(paths)]
