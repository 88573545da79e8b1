"""Message classes: fields, containers, lifetimes, formats."""

import copy
import gc
import math
import pickle
import random

import numpy as np
import pytest
from sanitizers import measures_memory

from millrace import protos
from millrace.protos import json_format, text_format


def small_graph():
    graph = protos.GraphDef()
    node = graph.node.add(name="a", op="Const")
    node.attr["dtype"].type = protos.DT_FLOAT
    node.attr["value"].tensor.float_val.extend([1.5, 2.5])
    graph.node.add(name="b", op="Identity", input=["a", "^c"])
    graph.versions.producer = 21
    return graph


# Scalars.


def test_scalars_have_defaults_and_keep_values():
    config = protos.ConfigProto()
    assert config.allow_soft_placement is False
    assert config.operation_timeout_in_ms == 0
    assert protos.NodeDef().name == ""
    assert protos.TensorProto().tensor_content == b""
    config.operation_timeout_in_ms = -(2**63)
    config.allow_soft_placement = 1
    config.gpu_options.per_process_gpu_memory_fraction = np.float32(0.5)
    assert config.operation_timeout_in_ms == -(2**63)
    assert config.allow_soft_placement is True
    assert config.gpu_options.per_process_gpu_memory_fraction == 0.5


def test_numpy_scalars_are_numbers():
    value = protos.AttrValue(i=np.int32(7))
    assert value.i == 7
    value.b = np.bool_(True)
    assert value.b is True
    assert not value.HasField("i")
    value.f = np.float64(0.1)
    assert value.f == np.float32(0.1)


def test_strings_are_text_and_bytes_are_bytes():
    node = protos.NodeDef(name="é", op=b"Add")
    assert node.name == "é"
    assert node.op == "Add"
    value = protos.AttrValue(s=b"\xff")
    assert value.s == b"\xff"
    with pytest.raises(TypeError, match="AttrValue.s: expected bytes, got 'x'"):
        value.s = "x"
    with pytest.raises(ValueError, match="UTF-8"):
        node.name = b"\xff"
    with pytest.raises(UnicodeEncodeError):
        node.name = "\udc80"


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("placement_period", "x", TypeError),
        ("placement_period", 1.0, TypeError),
        ("placement_period", None, TypeError),
        ("placement_period", 2**31, ValueError),
        ("placement_period", -(2**31) - 1, ValueError),
        ("operation_timeout_in_ms", 2**63, ValueError),
        ("allow_soft_placement", "yes", TypeError),
        ("gpu_options", protos.GPUOptions(), AttributeError),
        ("device_filters", ["a"], AttributeError),
        ("device_count", {"CPU": 1}, AttributeError),
        ("no_such_field", 1, AttributeError),
    ],
)
def test_wrong_values_are_refused(field, value, error):
    config = protos.ConfigProto()
    with pytest.raises(error):
        setattr(config, field, value)
    assert config == protos.ConfigProto()


def test_unsigned_fields_have_their_range():
    handle = protos.ResourceHandleProto(hash_code=2**64 - 1)
    assert handle.hash_code == 2**64 - 1
    for value in (-1, 2**64):
        with pytest.raises(ValueError, match="out of the range of uint64"):
            handle.hash_code = value
    tensor = protos.TensorProto(uint32_val=[2**32 - 1])
    with pytest.raises(ValueError, match="uint32"):
        tensor.uint32_val.append(2**32)


def test_a_refused_value_leaves_a_oneof_alone():
    value = protos.AttrValue(shape=protos.TensorShapeProto(unknown_rank=True))
    with pytest.raises(TypeError):
        value.i = "x"
    assert value.WhichOneof("value") == "shape"
    assert value.shape.unknown_rank


def test_enums_are_ints_with_names():
    assert protos.RunOptions.FULL_TRACE == 3
    assert protos.RunOptions.TraceLevel.FULL_TRACE == 3
    assert protos.RunOptions.TraceLevel.Name(3) == "FULL_TRACE"
    assert protos.RunOptions.TraceLevel.Value("NO_TRACE") == 0
    assert ("SOFTWARE_TRACE", 1) in protos.RunOptions.TraceLevel.items()
    assert protos.DataType.keys()[1] == "DT_FLOAT"
    assert protos.DataType.values()[1] == protos.DT_FLOAT == protos.DataType.DT_FLOAT == 1
    assert protos.Code.Name(5) == "NOT_FOUND"
    options = protos.RunOptions(trace_level="FULL_TRACE")
    assert options.trace_level == 3
    options.trace_level = 77  # open: kept
    assert options.trace_level == 77
    with pytest.raises(ValueError, match="NOPE"):
        options.trace_level = "NOPE"
    for bad in (99, 2**40):
        with pytest.raises(ValueError, match="no name"):
            protos.DataType.Name(bad)
    with pytest.raises(ValueError, match="no value"):
        protos.DataType.Value("DT_NOPE")
    with pytest.raises(AttributeError):
        protos.DataType.DT_NOPE  # noqa: B018


# Constructors.


def test_constructor_takes_messages_dicts_and_lists():
    optimizer = protos.OptimizerOptions(opt_level=protos.OptimizerOptions.L0)
    config = protos.ConfigProto(
        device_count={"CPU": 2, "GPU": 0},
        device_filters=["/job:ps"],
        graph_options=protos.GraphOptions(optimizer_options=optimizer),
        gpu_options={"allow_growth": True, "experimental": {"virtual_devices": [{}]}},
        cluster_def=None,
    )
    assert dict(config.device_count) == {"CPU": 2, "GPU": 0}
    assert config.device_filters == ["/job:ps"]
    assert config.graph_options.optimizer_options.opt_level == -1
    assert config.gpu_options.allow_growth
    assert len(config.gpu_options.experimental.virtual_devices) == 1
    assert not config.HasField("cluster_def")
    optimizer.opt_level = 0  # copied
    assert config.graph_options.optimizer_options.opt_level == -1


def test_example_as_programs_write_it():
    example = protos.Example(
        features=protos.Features(
            feature={
                "label": protos.Feature(int64_list=protos.Int64List(value=[3])),
                "image": protos.Feature(bytes_list=protos.BytesList(value=[b"\0\1"])),
                "weights": protos.Feature(float_list=protos.FloatList(value=np.ones(3))),
            }
        )
    )
    again = protos.Example.FromString(example.SerializeToString())
    assert again.features.feature["label"].int64_list.value[0] == 3
    assert list(again.features.feature["weights"].float_list.value) == [1.0] * 3
    assert again.features.feature["image"].WhichOneof("kind") == "bytes_list"


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: protos.ConfigProto(nope=1), ValueError),
        (lambda: protos.ConfigProto(1), TypeError),
        (lambda: protos.ConfigProto(gpu_options=protos.GraphDef()), TypeError),
        (lambda: protos.ConfigProto(gpu_options=3), TypeError),
        (lambda: protos.ConfigProto(gpu_options={"nope": 1}), ValueError),
        (lambda: protos.ConfigProto(device_count=3), TypeError),
        (lambda: protos.ConfigProto(device_count={1: 1}), TypeError),
        (lambda: protos.ConfigProto(device_filters=3), TypeError),
        (lambda: protos.GraphDef(node=[3]), TypeError),
        (lambda: protos.Message(), TypeError),
    ],
)
def test_wrong_constructor_arguments(make, error):
    with pytest.raises(error):
        make()


def test_nested_dicts_are_bounded():
    value = {}
    for _ in range(100):
        value = {"args": [value]}
    protos.FullTypeDef(**value)
    for _ in range(100_000):
        value = {"args": [value]}
    with pytest.raises(ValueError, match="nested more than 100 levels deep"):
        protos.FullTypeDef(**value)
    while value:  # taken apart by hand: deallocation recurses too
        value = value["args"].pop()


# Messages in messages.


def test_reading_does_not_set_and_writing_does():
    config = protos.ConfigProto()
    assert config.graph_options.optimizer_options.opt_level == 0
    assert not config.HasField("graph_options")
    config.graph_options.optimizer_options.opt_level = -1
    assert config.HasField("graph_options")
    assert config.graph_options.HasField("optimizer_options")
    config.rpc_options.SetInParent()
    assert config.HasField("rpc_options")


def test_views_of_an_unset_message_meet():
    config = protos.ConfigProto()
    first, second = config.gpu_options, config.gpu_options
    filters = config.cluster_def.job
    first.allow_growth = True
    assert second.allow_growth
    second.visible_device_list = "1"
    assert config.gpu_options.visible_device_list == "1"
    filters.add().name = "ps"
    assert config.cluster_def.job[0].name == "ps"


def test_extending_by_nothing_sets_the_message():
    feature = protos.Feature()
    feature.int64_list.value.extend([])
    assert feature.WhichOneof("kind") == "int64_list"


def test_oneof_members_replace_each_other():
    value = protos.AttrValue()
    assert value.WhichOneof("value") is None
    items = value.list
    items.i.append(4)
    assert value.WhichOneof("value") == "list"
    value.s = b"x"
    assert value.WhichOneof("value") == "s"
    assert not value.HasField("list")
    assert items.i == [4]  # taken out, and still good
    items.i.append(5)
    assert value.s == b"x"
    value.func.name = "f"
    assert value.s == b""
    value.ClearField("value")
    assert value.WhichOneof("value") is None
    with pytest.raises(ValueError, match="no oneof"):
        value.WhichOneof("nope")


def test_has_field_needs_presence():
    with pytest.raises(ValueError, match="presence"):
        protos.NodeDef().HasField("name")
    with pytest.raises(ValueError, match="repeated"):
        protos.NodeDef().HasField("input")
    with pytest.raises(ValueError, match="no field"):
        protos.NodeDef().HasField("nope")
    assert protos.AttrValue(i=0).HasField("i")


def test_copy_merge_and_clear():
    graph = small_graph()
    other = protos.GraphDef()
    other.CopyFrom(graph)
    assert other == graph
    other.MergeFrom(graph)
    assert [n.name for n in other.node] == ["a", "b", "a", "b"]
    other.CopyFrom(other)
    assert len(other.node) == 4
    other.ClearField("node")
    assert len(other.node) == 0
    assert other.versions.producer == 21
    other.Clear()
    assert other == protos.GraphDef()
    for wrong in (protos.NodeDef(), 3, None):
        with pytest.raises(TypeError):
            other.CopyFrom(wrong)
        with pytest.raises(TypeError):
            other.MergeFrom(wrong)
    with pytest.raises(ValueError, match="no field"):
        other.ClearField("nope")


def test_merging_a_message_with_parts_of_itself():
    tree = protos.FullTypeDef(args=[{"type_id": 1, "args": [{"type_id": 2}]}])
    tree.MergeFrom(tree)
    assert [a.type_id for a in tree.args] == [1, 1]
    tree.args.append(tree)
    assert [len(a.args) for a in tree.args] == [1, 1, 2]
    tree.args[0].CopyFrom(tree)
    assert len(tree.args[0].args) == 3
    tree.CopyFrom(tree.args[0].args[1])
    assert tree == protos.FullTypeDef(type_id=1, args=[{"type_id": 2}])
    tree.args[0].MergeFrom(tree)
    assert tree.args[0].args[0].type_id == 2
    tree.args.extend(tree.args)
    assert len(tree.args) == 2


def test_equality():
    assert small_graph() == small_graph()
    other = small_graph()
    other.node[0].attr["dtype"].type = 2
    assert small_graph() != other
    assert protos.NodeDef() != protos.GraphDef()
    assert protos.NodeDef() != 3
    assert protos.NodeDef() != None  # noqa: E711
    assert protos.AttrValue(f=0.0) == protos.AttrValue(f=-0.0)
    assert protos.AttrValue(i=0) != protos.AttrValue()
    with pytest.raises(TypeError, match="unhashable"):
        hash(other)


def test_copies_and_pickles():
    graph = small_graph()
    for other in (
        copy.copy(graph),
        copy.deepcopy(graph),
        pickle.loads(pickle.dumps(graph)),
    ):
        assert other == graph
        assert type(other) is protos.GraphDef
        other.node[0].name = "z"
        assert graph.node[0].name == "a"
    shape = protos.TensorShapeProto.Dim(size=3)
    assert pickle.loads(pickle.dumps(shape)) == shape
    assert copy.deepcopy(graph.node[1].input) == ["a", "^c"]


# Lists.


def test_lists_of_scalars_are_like_lists():
    dims = protos.AttrValue().list.i
    dims.extend(range(5))
    dims += [5]
    assert len(dims) == 6
    assert dims[-1] == 5
    assert dims[1:4] == [1, 2, 3]
    assert dims[::-2] == [5, 3, 1]
    assert list(dims) == [0, 1, 2, 3, 4, 5]
    assert 3 in dims
    assert dims == [0, 1, 2, 3, 4, 5]
    assert dims != [1]
    assert dims != (0, 1, 2, 3, 4, 5)
    dims[0] = 9
    dims[1:3] = [7]
    assert dims == [9, 7, 3, 4, 5]
    dims.insert(1, 8)
    dims.insert(-100, 1)
    dims.insert(100, 2)
    assert dims == [1, 9, 8, 7, 3, 4, 5, 2]
    assert dims.pop() == 2
    assert dims.pop(0) == 1
    dims.remove(7)
    del dims[0]
    assert dims == [8, 3, 4, 5]
    dims.sort()
    assert dims == [3, 4, 5, 8]
    dims.sort(key=lambda x: -x)
    assert dims == [8, 5, 4, 3]
    dims.reverse()
    assert dims.index(5) == 2
    assert dims.count(5) == 1
    del dims[::2]
    assert dims == [4, 8]
    assert repr(dims) == "[4, 8]"
    dims[:] = []
    assert not dims


def test_wrong_uses_of_lists():
    dims = protos.AttrValue(list={"i": [1, 2]}).list.i
    for index in (2, -3, 2**70):
        with pytest.raises(IndexError):
            dims[index]
    with pytest.raises(TypeError):
        dims["a"]
    for value in ("x", None, 1.5):
        with pytest.raises(TypeError, match="ListValue.i: expected an int"):
            dims.append(value)
    with pytest.raises(TypeError):
        dims[:] = [3, "x"]
    with pytest.raises(TypeError):
        dims.extend(3)
    with pytest.raises(ValueError, match="not in list"):
        dims.remove(7)
    with pytest.raises(IndexError):
        protos.TensorShapeProto().dim.pop()
    assert dims == [1, 2]
    with pytest.raises(TypeError):
        hash(dims)


def test_lists_of_messages():
    shape = protos.TensorShapeProto(dim=[{"size": 3}, {"size": 1}, {"size": 2}])
    first = shape.dim[0]
    shape.dim.sort(key=lambda d: d.size)
    assert [d.size for d in shape.dim] == [1, 2, 3]
    first.size = 30
    assert shape.dim[2].size == 30
    shape.dim.append(protos.TensorShapeProto.Dim(size=4))
    shape.dim.insert(0, protos.TensorShapeProto.Dim(size=0))
    assert [d.size for d in shape.dim] == [0, 1, 2, 30, 4]
    shape.dim.remove(protos.TensorShapeProto.Dim(size=2))
    assert [d.size for d in shape.dim[1:3]] == [1, 30]
    popped = shape.dim.pop(1)
    assert popped.size == 1
    assert shape.dim == [d for d in shape.dim]
    added = shape.dim.add(size=9, name="n")
    assert shape.dim[-1] == added
    with pytest.raises(TypeError):
        shape.dim.append(protos.NodeDef())
    with pytest.raises(TypeError):
        shape.dim[0] = added
    with pytest.raises(ValueError, match="no field"):
        shape.dim.add(nope=3)
    assert len(shape.dim) == 4


def test_sort_refuses_a_list_that_changes_meanwhile():
    shape = protos.TensorShapeProto(dim=[{"size": 2}, {"size": 1}])

    def key(dim):
        shape.ClearField("dim")
        return dim.size

    with pytest.raises(ValueError, match="modified"):
        shape.dim.sort(key=key)
    assert len(shape.dim) == 0


def test_numpy_reads_lists():
    tensor = protos.TensorProto(float_val=np.arange(4, dtype=np.float32))
    np.testing.assert_array_equal(np.array(tensor.float_val, np.float32), np.arange(4))
    np.testing.assert_array_equal(np.fromiter(tensor.float_val, np.float32), np.arange(4))


# Maps.


def test_maps_of_scalars_are_like_dicts():
    counts = protos.ConfigProto().device_count
    counts["GPU"] = 2
    counts.update({"CPU": 1})
    assert counts == {"CPU": 1, "GPU": 2}
    assert list(counts) == ["CPU", "GPU"]
    assert list(counts.items()) == [("CPU", 1), ("GPU", 2)]
    assert list(counts.values()) == [1, 2]
    assert counts.keys() & {"CPU", "x"} == {"CPU"}
    assert "CPU" in counts
    assert "x" not in counts
    assert counts.get("x") is None
    assert counts.get("x", 7) == 7
    assert counts["x"] == 0  # comes to be
    assert "x" in counts
    assert counts.pop("x") == 0
    assert counts.pop("x", 5) == 5
    assert counts.setdefault("CPU", 9) == 1
    assert counts.setdefault("TPU", 9) == 9
    del counts["TPU"]
    assert dict(counts) == {"CPU": 1, "GPU": 2}
    assert len(counts) == 2
    for act in (lambda: counts.__delitem__("x"), lambda: counts.pop("x")):
        with pytest.raises(KeyError):
            act()
    for act in (lambda: counts[3], lambda: 3 in counts, lambda: counts.update({"a": "b"})):
        with pytest.raises(TypeError):
            act()
    counts.clear()
    assert not counts


def test_maps_of_messages():
    node = protos.NodeDef()
    node.attr["T"].type = 1
    node.attr["N"].CopyFrom(protos.AttrValue(i=3))
    node.attr.get_or_create("S").s = b"s"
    assert sorted(node.attr) == ["N", "S", "T"]
    assert node.attr["N"].i == 3
    assert node.attr.get("x") is None
    view = node.attr["T"]
    str(node)  # must not freeze what the view changes
    view.type = 9
    assert "DT_INT64" in str(node)
    assert protos.NodeDef.FromString(node.SerializeToString()).attr["T"].type == 9
    node.attr.update({"T": protos.AttrValue(i=1), "D": {"f": 2.0}})
    assert node.attr["T"].i == 1
    assert node.attr["D"].f == 2.0
    with pytest.raises(ValueError, match="CopyFrom"):
        node.attr["T"] = protos.AttrValue()
    held = node.attr["D"]
    del node.attr["D"]
    assert held.f == 2.0
    for i in range(1000):  # the table grows; views stay
        node.attr[f"k{i}"].i = i
    held = node.attr["k500"]
    node.attr.clear()
    assert held.i == 500


def test_maps_with_integer_keys():
    job = protos.JobDef(name="ps", tasks={0: "a:1", 2: "b:2"})
    job.tasks[1] = "c:3"
    assert list(job.tasks.items()) == [(0, "a:1"), (1, "c:3"), (2, "b:2")]
    with pytest.raises(ValueError, match="out of the range"):
        job.tasks[2**40] = "x"
    info = protos.GraphDebugInfo()
    info.frames_by_id[2**64 - 1].line = 3
    assert info.frames_by_id == {2**64 - 1: protos.GraphDebugInfo.FileLineCol(line=3)}


# Bytes.


def test_bytes_round_trip():
    graph = small_graph()
    data = graph.SerializeToString()
    assert graph.ByteSize() == len(data)
    other = protos.GraphDef()
    assert other.ParseFromString(data) == len(data)
    assert other == graph
    assert protos.GraphDef.FromString(memoryview(data)) == graph
    other.MergeFromString(data)
    assert len(other.node) == 4
    assert other.SerializeToString(deterministic=True) == other.SerializeToString()
    assert other.IsInitialized()


def test_unknown_fields_survive_until_discarded():
    options = protos.RunOptions.FromString(b"\xa2\x06\x02hi")  # field 100
    assert options.SerializeToString() == b"\xa2\x06\x02hi"
    assert options != protos.RunOptions()
    options.DiscardUnknownFields()
    assert options.SerializeToString() == b""


def test_malformed_bytes_change_nothing(capfd):
    graph = small_graph()
    view = graph.versions
    for data in (b"\xff", b"\x0a\x7f", graph.SerializeToString()[:-1], b"\x0a\x03\x0a\x01\xff"):
        with pytest.raises(protos.DecodeError):
            graph.ParseFromString(data)
        with pytest.raises(protos.DecodeError):
            graph.MergeFromString(data)
        with pytest.raises(ValueError):
            view.ParseFromString(b"\xff")
    assert graph == small_graph()
    with pytest.raises(TypeError):
        graph.ParseFromString("text")
    assert capfd.readouterr() == ("", "")


def test_random_bytes_never_crash():
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    data = bytearray(small_graph().SerializeToString())
    for _ in range(2000):
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        try:
            graph = protos.GraphDef.FromString(bytes(changed))
        except protos.DecodeError:
            continue
        again = protos.GraphDef.FromString(graph.SerializeToString())
        assert again.SerializeToString() == graph.SerializeToString(), f"seed {seed}"


def test_nesting_is_bounded():
    tree = protos.FullTypeDef()
    node = tree
    with pytest.raises(ValueError, match="nested"):
        for _ in range(100_000):
            node = node.args.add()
    value = protos.AttrValue()
    with pytest.raises(ValueError, match="nested"):
        for _ in range(100_000):
            value = value.func.attr["x"]
    with pytest.raises(protos.DecodeError):
        text_format.Parse("args {" * 100_000 + "}" * 100_000, protos.FullTypeDef())
    data = b""
    for _ in range(200):
        size, length = len(data), b""
        while size >= 128:
            length += bytes([size % 128 + 128])
            size //= 128
        data = b"\x12" + length + bytes([size]) + data
    with pytest.raises(protos.DecodeError):
        protos.FullTypeDef.FromString(data)


# Views outlive what they were taken from.


@pytest.mark.parametrize(
    "act",
    [
        lambda graph: graph.Clear(),
        lambda graph: graph.ClearField("node"),
        lambda graph: graph.node.clear(),
        lambda graph: graph.node.__delitem__(slice(None)),
        lambda graph: graph.node.pop(0),
        lambda graph: graph.CopyFrom(protos.GraphDef()),
        lambda graph: graph.ParseFromString(b""),
        lambda graph: graph.node[0].Clear(),
        lambda graph: graph.node[0].ParseFromString(b""),
        lambda graph: graph.node[0].attr.clear(),
        lambda graph: graph.node[0].attr.update({"value": {"i": 1}}),
        lambda graph: graph.node[0].attr["value"].ClearField("tensor"),
        lambda graph: graph.node[0].attr["value"].ClearField("value"),
        lambda graph: setattr(graph.node[0].attr["value"], "i", 3),
        lambda graph: graph.node[0].attr["value"].list.SetInParent(),
        lambda graph: None,
    ],
)
def test_views_survive_their_parents(act):
    graph = small_graph()
    node = graph.node[0]
    tensor = node.attr["value"].tensor
    values = tensor.float_val
    shape = tensor.tensor_shape  # not set
    act(graph)
    for i in range(100):  # what is reused must not be what the views see
        graph.node.add(name=f"new{i}").attr["value"].tensor.float_val.append(i)
    del graph, node
    gc.collect()
    assert list(values) == [1.5, 2.5]
    shape.dim.add(size=7)
    values.append(3.5)
    assert tensor.tensor_shape.dim[0].size == 7
    assert list(tensor.float_val) == [1.5, 2.5, 3.5]
    str(tensor)


def test_python_code_that_runs_in_a_conversion_may_change_the_message():
    class Nasty:
        def __init__(self, graph):
            self.graph = graph

        def __index__(self):
            self.graph.ParseFromString(b"")
            gc.collect()
            return 5

    graph = small_graph()
    graph.versions.producer = Nasty(graph)
    graph = small_graph()
    dims = graph.node[1].attr["s"].shape.dim
    dims.extend([{"size": Nasty(graph)}, {"size": 6}])
    assert [d.size for d in dims] == [5, 6]

    config = protos.ConfigProto()
    with pytest.raises(RuntimeError, match="while it was added to"):
        config.session_inter_op_thread_pool.add(num_threads=Nasty(config))
    config.device_count["CPU"] = Nasty(config)
    assert config.device_count == {"CPU": 5}

    options = protos.GPUOptions.Experimental.VirtualDevices(priority=[1, 2, 3])
    with pytest.raises(IndexError):
        options.priority[2] = Nasty(options)


def test_objects_that_were_not_constructed_are_refused():
    raw = protos.GraphDef.__new__(protos.GraphDef)
    with pytest.warns(RuntimeWarning), pytest.raises(TypeError):
        raw.node  # noqa: B018
    for method in (protos.GraphDef.ListFields, protos.GraphDef.__reduce__):
        with pytest.raises(TypeError):
            method(3)
    with pytest.raises(TypeError, match="expected a tensorflow.GraphDef"):
        protos.GraphDef.node.__get__(protos.NodeDef())


@measures_memory
def test_memory_of_a_message_used_again_is_bounded():
    resource = pytest.importorskip("resource")
    data = protos.TensorProto(tensor_content=bytes(10_000), float_val=[1.0] * 1000)
    data = data.SerializeToString()
    tensor = protos.TensorProto()
    for _ in range(1000):
        tensor.ParseFromString(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(10_000):
        tensor.ParseFromString(data)
        tensor.Clear()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10_000


# Text, JSON, descriptors, names.


def test_text_format():
    shape = protos.TensorShapeProto(dim=[{"size": 2}, {"size": -1, "name": "é"}])
    text = text_format.MessageToString(shape)
    assert text == 'dim {\n  size: 2\n}\ndim {\n  size: -1\n  name: "\\303\\251"\n}\n'
    assert text_format.MessageToString(shape, as_one_line=True, as_utf8=True) == (
        'dim { size: 2 } dim { size: -1 name: "é" }'
    )
    assert str(shape) == repr(shape) == text.replace("\\303\\251", "é")
    assert text_format.Parse(text, protos.TensorShapeProto()) == shape
    assert text_format.Parse(text.encode(), protos.TensorShapeProto()) == shape
    ints = protos.AttrValue(list={"i": [1, 2]})
    short = text_format.MessageToString(ints, use_short_repeated_primitives=True)
    assert short == "list {\n  i: [1, 2]\n}\n"
    merged = text_format.Merge("dim { size: 5 }", protos.TensorShapeProto(dim=[{}]))
    assert len(merged.dim) == 2
    assert str(protos.GraphDef()) == ""


def test_text_with_mistakes_names_the_place():
    shape = protos.TensorShapeProto(unknown_rank=True)
    for text, place in (("dim {\n  sise: 2\n}", "2:7"), ("dim {", "1:6"), ("dim: 3", "1:6")):
        with pytest.raises(text_format.ParseError, match=place):
            text_format.Parse(text, shape)
    assert shape == protos.TensorShapeProto(unknown_rank=True)


def test_text_of_maps_round_trips():
    graph = small_graph()
    again = text_format.Parse(str(graph), protos.GraphDef())
    assert again == graph
    again.node[0].attr["dtype"].type = 2
    assert "DT_DOUBLE" in str(again)


def test_json():
    options = protos.ConfigProto(device_count={"CPU": 1}, operation_timeout_in_ms=5)
    options.graph_options.optimizer_options.opt_level = -1
    fields = json_format.MessageToDict(options)
    assert fields == {
        "deviceCount": {"CPU": 1},
        "operationTimeoutInMs": "5",
        "graphOptions": {"optimizerOptions": {"optLevel": "L0"}},
    }
    assert json_format.ParseDict(fields, protos.ConfigProto()) == options
    text = json_format.MessageToJson(options, preserving_proto_field_name=True)
    assert '"device_count"' in text
    assert json_format.Parse(text, protos.ConfigProto()) == options
    with pytest.raises(json_format.ParseError):
        json_format.Parse('{"nope": 1}', protos.ConfigProto())
    with pytest.raises(json_format.ParseError):
        json_format.Parse("{", protos.ConfigProto())


def test_list_fields_and_descriptors():
    node = protos.NodeDef(name="a", input=["b"])
    assert [(f.name, f.number) for f, _ in node.ListFields()] == [("name", 1), ("input", 3)]
    assert node.ListFields()[1][1] == ["b"]
    descriptor = protos.NodeDef.DESCRIPTOR
    assert node.DESCRIPTOR is descriptor
    assert descriptor.name == "NodeDef"
    assert descriptor.full_name == "tensorflow.NodeDef"
    field = descriptor.fields_by_name["input"]
    assert field.label == field.LABEL_REPEATED
    assert field.type == field.TYPE_STRING
    assert descriptor.fields_by_number[5].is_map
    assert protos.GraphDef.DESCRIPTOR.fields_by_name["node"].message_type is descriptor
    (value,) = protos.AttrValue.DESCRIPTOR.oneofs
    assert value.name == "value" and value.fields[0].containing_oneof == value
    assert protos.AttrValue.DESCRIPTOR.oneofs_by_name["value"] == value
    assert protos.AttrValue.DESCRIPTOR.fields_by_name["type"].enum_type is protos.DataType
    assert protos.NodeDef.NAME_FIELD_NUMBER == 1
    assert protos.AttrValue.ListValue.__qualname__ == "AttrValue.ListValue"
    assert [t.name for t in protos.AttrValue.DESCRIPTOR.nested_types] == ["ListValue"]


def test_descriptors_answer_what_googles_package_asks():
    attr = protos.NodeDef.DESCRIPTOR.fields_by_name["attr"]
    assert attr.message_type.has_options and attr.message_type.GetOptions().map_entry
    assert not protos.NodeDef.DESCRIPTOR.has_options
    assert not protos.NodeDef.DESCRIPTOR.GetOptions().map_entry
    entry = protos.NodeDef().attr.GetEntryClass()(key="T")
    entry.value.type = protos.DT_INT32
    assert entry.key == "T" and entry.DESCRIPTOR is attr.message_type
    types = protos.DataType.values_by_number
    assert types[1].name == "DT_FLOAT" and protos.DataType.values_by_name["DT_INT32"].number == 3
    assert protos.NodeDef.DESCRIPTOR.file.name.endswith("node_def.proto")
    name = protos.NodeDef.DESCRIPTOR.fields_by_name["name"]
    assert not name.has_presence and not name.is_extension and not name.has_options
    producer = protos.SaverDef.DESCRIPTOR.fields_by_name["filename_tensor_name"]
    assert producer.json_name == "filenameTensorName"


def test_googles_formats_read_and_write_messages():
    text_format = pytest.importorskip("google.protobuf.text_format")
    json_format = pytest.importorskip("google.protobuf.json_format")
    text = """node { name: "a" op: "Const" input: ["b", "^c"]
      attr { key: "T" value { type: DT_INT32 } }
      attr { key: "l" value { list { i: [1, -2] } } } } versions { producer: 7 }"""
    graph = text_format.Parse(text, protos.GraphDef())
    assert graph.node[0].attr["T"].type == protos.DT_INT32
    assert list(graph.node[0].attr["l"].list.i) == [1, -2] and graph.versions.producer == 7
    assert text_format.Parse(text_format.MessageToString(graph), protos.GraphDef()) == graph
    assert json_format.Parse(json_format.MessageToJson(graph), protos.GraphDef()) == graph
    with pytest.raises(text_format.ParseError, match="bogus"):
        text_format.Parse("bogus: 1", protos.GraphDef())


def test_any_holds_messages():
    held = protos.Any()
    held.Pack(protos.AssetFileDef(filename="vocab"))
    assert held.type_url == "type.googleapis.com/tensorflow.AssetFileDef"
    assert held.Is(protos.AssetFileDef.DESCRIPTOR)
    asset = protos.AssetFileDef()
    assert held.Unpack(asset)
    assert asset.filename == "vocab"
    assert not held.Unpack(protos.NodeDef())


def test_every_type_can_be_made():
    names = [name for name in dir(protos) if name[0].isupper()]
    assert {"GraphDef", "Event", "Example", "BundleEntryProto", "SavedModel"} <= set(names)
    for name in names:
        kind = getattr(protos, name)
        if not isinstance(kind, type) or kind is protos.Message:
            continue
        if issubclass(kind, protos.Message):
            message = kind()
            assert kind.FromString(message.SerializeToString()) == message
            for field in kind.DESCRIPTOR.fields:
                getattr(message, field.name)
            assert message == kind()
    with pytest.raises(AttributeError):
        protos.NoSuchMessage  # noqa: B018
    with pytest.raises(LookupError):
        protos.message_class("NoSuchMessage")
    assert protos.message_class("tensorflow.GraphDef") is protos.GraphDef


def test_public_names():
    from millrace.core import messages as public

    assert public.ConfigProto is protos.ConfigProto
    assert public.DataType is protos.DataType


def test_floats_keep_what_is_not_a_number():
    value = protos.AttrValue(f=math.nan)
    assert math.isnan(protos.AttrValue.FromString(value.SerializeToString()).f)
    value.f = 1e300
    assert value.f == math.inf
    assert text_format.Parse(str(value), protos.AttrValue()).f == math.inf
