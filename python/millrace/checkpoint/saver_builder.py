"""The operations that save and restore, in the names that TensorFlow gives them."""

from typing import Any

from millrace import gen_ops, protos
from millrace.checkpoint.saveable import (
    ReferenceVariableSaveable,
    ResourceVariableSaveable,
    SaveableObject,
    SaveSpec,
    cpu_of,
    op_list_to_dict,
    validate_and_slice_inputs,
)
from millrace.core import logging
from millrace.core.device import canonical_name
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant
from millrace.graph.default_graph import (
    control_dependencies,
    device,
    get_default_graph,
    name_scope,
)
from millrace.graph.operation import Operation
from millrace.ops.ordering import group, with_dependencies
from millrace.state.partitioned_variable import PartitionedVariable
from millrace.state.variable import Variable

V2 = protos.SaverDef.V2
# What the entry of a checkpoint with the state of random ops is called. No variable's name begins
# with "_".
RANDOM_STATE = "_RANDOM_STATE"
_RANDOM_STATE_ATTR = "_op_states"
# Of a SaveV2 that goes on beside the program.
ASYNCHRONOUS_ATTR = "_asynchronous"


class BaseSaverBuilder:
    """Adds what saves and restores to the default graph: `build`. Made to be derived from.

    `write_version`: the format of checkpoints, SaverDef.V2 or the old SaverDef.V1.
    """

    SaveSpec = SaveSpec
    SaveableObject = SaveableObject
    VariableSaveable = ReferenceVariableSaveable
    ResourceVariableSaveable = ResourceVariableSaveable
    OpListToDict = staticmethod(op_list_to_dict)

    def __init__(self, write_version: int = V2):
        if write_version not in (protos.SaverDef.V1, V2):
            raise ValueError(f"write_version must be SaverDef.V1 or SaverDef.V2: {write_version}")
        if write_version != V2:
            logging.warning(
                "TensorFlow's V1 checkpoint format has been deprecated. Consider switching to the "
                "more efficient V2 format: tf.train.Saver(write_version=tf.train.SaverDef.V2), "
                "which is the default."
            )
        self._write_version = write_version

    # What derived classes may do in other ways.

    def save_op(self, filename_tensor: Tensor, saveables: list[SaveableObject]) -> Operation:
        """The operation that saves to a prefix, or to a file of format V1."""
        specs = [spec for saveable in saveables for spec in saveable.specs]
        names = [spec.name for spec in specs]
        slices = [spec.slice_spec for spec in specs]
        save = gen_ops.save_v2 if self._write_version == V2 else gen_ops.save_slices
        return save(filename_tensor, names, slices, [spec.tensor for spec in specs])

    def bulk_restore(
        self, filename_tensor: Tensor, saveables: list[SaveableObject], preferred_shard: int,
        restore_sequentially: bool,
    ) -> list[Tensor]:  # fmt: skip
        """The tensors of all saveables from a checkpoint."""
        out: list[Tensor] = []
        for saveable in saveables:
            waited = out[-1:] if restore_sequentially else []
            with control_dependencies(waited), device(cpu_of(saveable.device)):
                out += self.restore_op(filename_tensor, saveable, preferred_shard)
        return out

    def restore_op(
        self, filename_tensor: Tensor, saveable: SaveableObject, preferred_shard: int
    ) -> list[Tensor]:
        """The tensors of one saveable from a checkpoint."""
        del preferred_shard
        return [
            gen_ops.restore_v2(
                filename_tensor, [spec.name], [spec.slice_spec], [spec.dtype.base_dtype]
            )[0]
            for spec in saveable.specs
        ]

    def sharded_filename(self, filename_tensor: Tensor, shard: int, num_shards: Any) -> Tensor:
        """The name of one part of a checkpoint."""
        return gen_ops.sharded_filename(filename_tensor, shard, num_shards)

    # The whole.

    def _add_save(
        self, filename_tensor: Tensor, saveables: list[SaveableObject], state: str | None = None
    ) -> Tensor:
        """`state`: the name under which the state of the device's random ops is saved too."""
        save = self.save_op(filename_tensor, saveables)
        if state:
            save._set_attr(_RANDOM_STATE_ATTR, state)
        return with_dependencies([save], filename_tensor)

    def _add_sharded_save(
        self, prefix: Tensor, per_device: list[tuple[str, Any]], random_state: bool
    ) -> Tensor:
        """Parts are written aside, one by each device, and merged into one checkpoint. Those of
        format V1 stay as they are."""
        merged = self._write_version == V2
        with device("CPU"):
            aside = gen_ops.string_join([prefix, constant("_temp/part")]) if merged else prefix
        num_shards = constant(len(per_device), name="num_shards")
        parts, saves = [], []
        for shard, (place, saveables) in enumerate(per_device):
            with device(cpu_of(place)):
                parts.append(self.sharded_filename(aside, shard, num_shards))
                state = RANDOM_STATE + place if random_state else None
                saves.append(self._add_save(parts[-1], saveables, state))
        last = cpu_of(per_device[-1][0])
        with control_dependencies([save.op for save in saves]), device(last):
            if not merged:
                return gen_ops.sharded_filespec(prefix, num_shards)
            merge = gen_ops.merge_v2_checkpoints(parts, prefix, delete_old_dirs=True)
            with control_dependencies([merge]):
                return gen_ops.identity(prefix)

    def _add_restore(
        self, filename_tensor: Tensor, saveables: list[SaveableObject],
        restore_sequentially: bool, reshape: bool, shard: int = -1, name: str = "restore_all",
        state: str | None = None,
    ) -> Operation:  # fmt: skip
        tensors = self.bulk_restore(filename_tensor, saveables, shard, restore_sequentially)
        if state:
            tensors[0].op._set_attr(_RANDOM_STATE_ATTR, state)
        assigned, first = [], 0
        for saveable in saveables:
            shapes = [_shape(spec.tensor) for spec in saveable.specs] if reshape else None
            after = first + len(saveable.specs)
            assigned.append(saveable.restore(list(tensors[first:after]), shapes))
            first = after
        return group(*assigned, name=name)

    def _add_sharded_restore(
        self, filename_tensor: Tensor, per_device: list[tuple[str, Any]],
        restore_sequentially: bool, reshape: bool, random_state: bool,
    ) -> Operation:  # fmt: skip
        restores = []
        for shard, (place, saveables) in enumerate(per_device):
            with device(place or None):
                restores.append(
                    self._add_restore(
                        filename_tensor, saveables, restore_sequentially, reshape, shard,
                        "restore_shard", RANDOM_STATE + place if random_state else None,
                    )
                )  # fmt: skip
        return group(*restores, name="restore_all")

    def _by_device(self, saveables: list[SaveableObject]) -> list[tuple[str, Any]]:
        out: dict[str, list[SaveableObject]] = {}
        for saveable in saveables:
            places = {canonical_name(spec.device) for spec in saveable.specs}
            if len(places) != 1:
                raise ValueError(
                    f"All tensors of a saveable object must be on the same device: {saveable.name}"
                )
            out.setdefault(places.pop(), []).append(saveable)
        return sorted(out.items())

    def build(
        self, names_to_saveables: Any, reshape: bool = False, sharded: bool = False,
        max_to_keep: int | None = 5, keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None, restore_sequentially: bool = False,
        filename: str | None = "model", random_state: bool = False,
    ) -> Any:  # fmt: skip
        """Adds the operations. Gives the SaverDef that names them. With `random_state` they save
        and restore the state of random ops, too; a checkpoint may be without it, and one of format
        V1 is.

        TypeError for what cannot be saved, ValueError for names or things that are there twice.
        """
        random_state = random_state and self._write_version == V2
        saveables = validate_and_slice_inputs(names_to_saveables)
        known = [s.op for s in saveables if isinstance(s.op, (Tensor, Variable))]
        with name_scope(name, "save", known):
            prefix = gen_ops.placeholder_with_default(filename or "model", [], name="filename")
            prefix = gen_ops.placeholder_with_default(prefix, [], name="Const")
            if sharded:
                per_device = self._by_device(saveables)
                save = self._add_sharded_save(prefix, per_device, random_state)
                restore = self._add_sharded_restore(
                    prefix, per_device, restore_sequentially, reshape, random_state
                )
            else:
                state = RANDOM_STATE if random_state else None
                save = self._add_save(prefix, saveables, state)
                restore = self._add_restore(
                    prefix, saveables, restore_sequentially, reshape, state=state
                )
        _join_partitioned()
        return protos.SaverDef(
            filename_tensor_name=prefix.name, save_tensor_name=save.name,
            restore_op_name=restore.name, max_to_keep=max_to_keep or 0, sharded=sharded,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            version=self._write_version,
        )  # fmt: skip


def _shape(tensor: Tensor) -> Any:
    return tensor.shape.as_list() if tensor.shape.is_fully_defined() else gen_ops.shape(tensor)


def _join_partitioned() -> None:
    """Gives partitioned variables of collections the nodes by whose names MetaGraphs know them."""
    graph = get_default_graph()
    for key in graph.get_all_collection_keys():
        for element in graph.get_collection(key):
            if isinstance(element, PartitionedVariable) and graph._find(element.name) < 0:
                element.as_tensor()


class BulkSaverBuilder(BaseSaverBuilder):
    """A builder that restores all with one operation, which reads in the order of the file."""

    def bulk_restore(
        self, filename_tensor: Tensor, saveables: list[SaveableObject], preferred_shard: int,
        restore_sequentially: bool,
    ) -> list[Tensor]:  # fmt: skip
        """The tensors of all saveables from a checkpoint."""
        del preferred_shard, restore_sequentially
        specs = [spec for saveable in saveables for spec in saveable.specs]
        with device("cpu:0"):
            return list(
                gen_ops.restore_v2(
                    filename_tensor, [spec.name for spec in specs],
                    [spec.slice_spec for spec in specs], [spec.dtype.base_dtype for spec in specs],
                )
            )  # fmt: skip
