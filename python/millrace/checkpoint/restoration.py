"""Giving objects the values of a checkpoint: now, or when they are attached."""

import itertools
import weakref
from typing import Any, NamedTuple

from millrace import gen_ops
from millrace.checkpoint import object_graph
from millrace.core import dtypes, errors, logging
from millrace.core.trackable import Position, Trackable, objects_below
from millrace.core.tracked_data import TrackedData
from millrace.graph.convert import convert_to_tensor

_numbers = itertools.count(1)
_SHOWN = 10


class NodePosition(Position):
    """A node of a checkpoint that waits for its object."""

    def __init__(self, restoration: "Restoration", node: int):
        self.restoration, self.node = restoration, node

    def bind(self, target: Trackable) -> None:
        self.restoration.bind(self.node, target)

    def value(self) -> Any:
        return self.restoration.value_of(self.node)


class _Wanted(NamedTuple):
    """What an object needs of the checkpoint: keys, and what takes the tensors."""

    keys: list[str]
    take: Any


class Restoration:
    """One restore of one checkpoint. Lives as long as objects wait for values of it; then it logs
    what nobody took, unless `expect_partial`.

    Args:
      prefix: the checkpoint.
      reader: a reader of it.
      graph: its TrackableObjectGraph, checked.
    """

    def __init__(self, prefix: str, reader: Any, graph: Any):
        self.prefix, self.graph = prefix, graph
        self._types = reader.get_variable_to_dtype_map()
        self.number = next(_numbers)
        self.expect_partial = False
        self._bound: dict[int, Any] = {}
        # Attributes that were not restored although their object is there.
        self.unused: dict[int, list[str]] = {}
        self._waiting_slots: dict[int, list[tuple[Any, str, int]]] = {}

    def object_of(self, node: int) -> Any:
        """The object of a node, or None while there is none, or none any more."""
        found = self._bound.get(node)
        return found() if isinstance(found, weakref.ref) else found

    def bind(self, node: int, target: Trackable, attached: Any = None) -> None:
        """Makes an object that of a node, and the objects below it those of the nodes below.

        `attached`: more children of the object.
        """
        todo = [(node, target)]
        fresh: list[tuple[int, Any]] = []
        while todo:
            at, found = todo.pop(0)
            if not self._take(at, found):
                continue
            fresh.append((at, found))
            children = found._trackable_children()
            if found is target and attached:
                children.update(attached)
            for child in self.graph.nodes[at].children:
                known = children.get(child.local_name)
                if known is not None:
                    todo.append((child.node_id, known))
                else:
                    awaited = found._own("_awaited").setdefault(child.local_name, [])
                    awaited.append(NodePosition(self, child.node_id))
        self._restore_values(fresh)
        for at, found in fresh:
            self._bind_slots(at, found)

    def _take(self, node: int, target: Any) -> bool:
        """Remembers an object for a node. False when that changes nothing."""
        if node in self._bound:
            known = self.object_of(node)
            if known is not target and known is not None:
                logging.warning(
                    "Inconsistent references when loading the checkpoint into this object graph. "
                    "For example, in the saved checkpoint object, `model.layer.weight` and "
                    "`model.layer_copy.weight` reference the same variable, while in the current "
                    "object these are two different variables. The referenced variables are:"
                    "(%s and %s).",
                    known,
                    target,
                )
                return False
            if known is target:
                return False
        try:
            self._bound[node] = weakref.ref(target)
        except TypeError:  # a tuple
            self._bound[node] = target
        return True

    # Values.

    def _restore_values(self, pairs: list[tuple[int, Any]]) -> None:
        wanted: list[_Wanted] = []
        for node, target in pairs:
            if target._update_uid <= self.number:  # else it has newer values
                wanted += self._wanted(node, target)
                target._update_uid = self.number
        keys = [key for want in wanted for key in want.keys]
        if not keys:
            return
        found = iter(restore_tensors(self.prefix, keys, [self._type_of(key) for key in keys]))
        for want in wanted:
            want.take([next(found) for _ in want.keys])

    def _type_of(self, key: str) -> Any:
        if key not in self._types:
            raise errors.DataLossError(
                None, None,
                f"{self.prefix}.index: the checkpoint is damaged: its graph of objects names the "
                f"tensor {key!r}, which it does not have",
            )  # fmt: skip
        return self._types[key]

    def _wanted(self, node: int, target: Any) -> list[_Wanted]:
        attributes = {a.name: a.checkpoint_key for a in self.graph.nodes[node].attributes}
        if not attributes:
            return []
        out = []
        if target._saves_tensors():
            whole = target._attribute_name
            names = [name for name in target._saved_names() if (whole or name) in attributes]
            if names:
                keys = [
                    attributes[name] if whole is None else attributes[whole] + name
                    for name in names
                ]
                out.append(_Wanted(keys, _Restorer(target, names)))
            used = {whole or name for name in names}
        else:
            saveables = object_graph.saveables_of(target)
            used = {name for name in saveables if name in attributes}
            for name in used:
                saveable = saveables[name]
                own = object_graph.escaped(name)
                ends = object_graph.spec_keys(name, saveable)
                keys = [attributes[name] + end[len(own) :] for end in ends]
                out.append(_Wanted(keys, _SaveableRestorer(saveable)))
        unused = [name for name in attributes if name not in used]
        if unused:
            self.unused[node] = unused
        return out

    # Slots.

    def _bind_slots(self, node: int, target: Any) -> None:
        for slot in self.graph.nodes[node].slot_variables:
            variable = self.object_of(slot.original_variable_node_id)
            place = (slot.slot_name, slot.slot_variable_node_id)
            if variable is None:
                waiting = self._waiting_slots.setdefault(slot.original_variable_node_id, [])
                waiting.append((weakref.ref(target), *place))
            else:
                self._restore_slot(target, variable, *place)
        for owner, name, slot_node in self._waiting_slots.pop(node, ()):
            if owner() is not None:
                self._restore_slot(owner(), target, name, slot_node)

    def _restore_slot(self, owner: Any, variable: Any, name: str, node: int) -> None:
        if self.object_of(node) is None:
            owner._restore_slot(variable, name, NodePosition(self, node))

    def value_of(self, node: int) -> Any:
        """The one tensor of a node, a variable's value; None where it has another number."""
        attributes = self.graph.nodes[node].attributes
        if len(attributes) != 1:
            return None
        key = attributes[0].checkpoint_key
        return restore_tensors(self.prefix, [key], [self._type_of(key)])[0]

    # What is left.

    def unbound(self) -> list[int]:
        """The nodes with values that have no object."""
        return [
            node for node, written in enumerate(self.graph.nodes)
            if written.attributes and node not in self._bound
        ]  # fmt: skip

    def missing(self) -> list[str]:
        """What nobody took, by path: "(root).model.w", or "(root).model.w's attribute x"."""
        paths = object_graph.graph_paths(self.graph)
        out = [paths[node] for node in self.unbound()]
        for node, names in self.unused.items():
            out += [f"{paths[node]} (attribute {name!r})" for name in names]
        return out

    def __del__(self) -> None:
        if self.expect_partial:
            return
        try:
            missing = self.missing()
            if not missing:
                return
            logging.warning(
                "Detecting that an object or model or tf.train.Checkpoint is being deleted with "
                "unrestored values. See the following logs for the specific values in question. "
                "To silence these warnings, use `status.expect_partial()`."
            )
            for name in missing:
                logging.warning("Value in checkpoint could not be found in the restored object: %s",
                                name)  # fmt: skip
        except Exception:  # the interpreter is ending
            return


class _Restorer:
    def __init__(self, target: Any, names: list[str]):
        self._target, self._names = target, names

    def __call__(self, tensors: list[Any]) -> None:
        self._target._restore_from_tensors(dict(zip(self._names, tensors, strict=True)))


class _SaveableRestorer:
    def __init__(self, saveable: Any):
        self._saveable = saveable

    def __call__(self, tensors: list[Any]) -> None:
        self._saveable.restore(tensors, None)


def restore_tensors(prefix: str, keys: list[str], types: list[Any]) -> list[Any]:
    """The tensors of a checkpoint under some keys."""
    found = gen_ops.restore_v2(convert_to_tensor(prefix), keys, [""] * len(keys), types)
    return found if isinstance(found, (list, tuple)) else [found]


class LoadStatus:
    """What became of a restore: what `Checkpoint.restore` gives."""

    def assert_consumed(self) -> "LoadStatus":
        """AssertionError unless every value of the checkpoint has its object, and each object its
        value."""
        raise NotImplementedError

    def assert_existing_objects_matched(self) -> "LoadStatus":
        """AssertionError unless all objects there are have their values."""
        raise NotImplementedError

    def assert_nontrivial_match(self) -> "LoadStatus":
        """AssertionError unless something besides the root was restored."""
        raise NotImplementedError

    def expect_partial(self) -> "LoadStatus":
        """Nothing is logged about values that nobody took."""
        return self

    def run_restore_ops(self, session: Any = None) -> None:
        """Nothing: values are restored at once."""
        del session

    def initialize_or_restore(self, session: Any = None) -> None:
        """Nothing: values are restored at once, and variables have values from their beginning."""
        del session


class CheckpointLoadStatus(LoadStatus):
    """The status of a restore of objects."""

    def __init__(self, restoration: Restoration, root: Any, attached: Any):
        self._restoration, self._root, self._attached = restoration, root, attached

    def assert_consumed(self) -> "CheckpointLoadStatus":
        restoration = self._restoration
        self.assert_existing_objects_matched()
        paths = object_graph.graph_paths(restoration.graph)
        unbound = restoration.unbound()
        if unbound:
            raise AssertionError(
                f"Unresolved object in checkpoint {restoration.prefix}: "
                + _few([paths[node] for node in unbound])
            )
        if restoration.unused:
            raise AssertionError(
                "Unused attributes in these objects (the attributes exist in the checkpoint but "
                "were not restored): \n"
                + "\n".join(f"{paths[n]}: {names}" for n, names in restoration.unused.items())
            )
        return self

    def _unmatched(self) -> list[Any]:
        bound = {id(o) for o in map(self._restoration.object_of, self._restoration._bound)}
        return [
            each for each in objects_below(self._root, self._attached)
            if id(each) not in bound and not _is_empty_data(each)
        ]  # fmt: skip

    def assert_existing_objects_matched(self) -> "CheckpointLoadStatus":
        unmatched = self._unmatched()
        if unmatched:
            shown = _few([repr(each) for each in unmatched])
            raise AssertionError(
                f"Found {len(unmatched)} Python objects that were not bound to checkpointed "
                "values, likely due to changes in the Python program. Showing "
                f"{min(len(unmatched), _SHOWN)} of {len(unmatched)} unmatched objects: {shown}"
            )
        return self

    def assert_nontrivial_match(self) -> "CheckpointLoadStatus":
        matched = [
            each for each in map(self._restoration.object_of, self._restoration._bound)
            if each is not None and each is not self._root
        ]  # fmt: skip
        below = objects_below(self._root, self._attached)[1:]
        if not matched and any(not _is_empty_data(each) for each in below):
            raise AssertionError(
                "Nothing except the root object matched a checkpointed value. Typically this means "
                "that the checkpoint does not match the Python program. The following objects have "
                f"no matching checkpointed value: {_few([repr(each) for each in below])}"
            )
        return self

    def expect_partial(self) -> "CheckpointLoadStatus":
        self._restoration.expect_partial = True
        return self


def _is_empty_data(target: Any) -> bool:
    """Whether an object is a list or such without anything to save in it."""
    if not isinstance(target, TrackedData):
        return False
    return all(isinstance(each, TrackedData) for each in objects_below(target))


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


class InitializationOnlyStatus(LoadStatus):
    """The status of `restore(None)`: nothing was restored."""

    def _nothing(self) -> AssertionError:
        return AssertionError(
            "No checkpoint specified (save_path=None); nothing is being restored."
        )

    def assert_consumed(self) -> "InitializationOnlyStatus":
        raise self._nothing()

    def assert_existing_objects_matched(self) -> "InitializationOnlyStatus":
        raise self._nothing()

    def assert_nontrivial_match(self) -> "InitializationOnlyStatus":
        raise self._nothing()

    def run_restore_ops(self, session: Any = None) -> None:
        raise self._nothing()


class NameBasedStatus(LoadStatus):
    """The status of a restore of a checkpoint that was saved by the names of variables."""

    def __init__(self, prefix: str, reader: Any, root: Any, attached: Any):
        types = reader.get_variable_to_dtype_map()
        self._prefix = prefix
        self._left = set(types)
        self._unmatched = []
        found: list[tuple[Any, str]] = []
        for each in objects_below(root, attached):
            if not each._saves_tensors() or each._saved_names() != ["VARIABLE_VALUE"]:
                continue
            name = getattr(each, "_shared_name", None)
            if name in types:
                found.append((each, name))
                self._left.discard(name)
            else:
                self._unmatched.append(each)
        if found:
            names = [name for _, name in found]
            values = restore_tensors(prefix, names, [types[name] for name in names])
            for (each, _), value in zip(found, values, strict=True):
                each._restore_from_tensors({"VARIABLE_VALUE": value})
        self._found = found

    def assert_consumed(self) -> "NameBasedStatus":
        self.assert_existing_objects_matched()
        if self._left:
            raise AssertionError(
                f"Some values of {self._prefix} have no variable of their name: "
                f"{_few(sorted(self._left))}"
            )
        return self

    def assert_existing_objects_matched(self) -> "NameBasedStatus":
        unmatched = [
            each for each in self._unmatched if each.dtype is not dtypes.int64 or
            each._shared_name != "save_counter"
        ]  # fmt: skip
        if unmatched:
            raise AssertionError(
                f"Some objects are not in the name-based checkpoint {self._prefix}: "
                f"{_few([repr(each) for each in unmatched])}"
            )
        return self

    def assert_nontrivial_match(self) -> "NameBasedStatus":
        if not self._found:
            raise AssertionError(f"No variable has a name that {self._prefix} knows.")
        return self
