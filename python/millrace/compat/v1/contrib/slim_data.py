"""Data sets of `tf.contrib.slim`: files of Examples, decoders, and queues that read them."""

from typing import Any, Callable

from millrace.core import dtypes
from millrace.core.export import export
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor as GraphSparseTensor
from millrace.io import gfile
from millrace.io.decoding import decode_raw
from millrace.io.parsing import parse_single_example
from millrace.ops import array, math
from millrace.ops.control_flow import case
from millrace.ops.image.codecs import decode_jpeg, decode_png
from millrace.ops.sparse.arrange import sparse_reshape
from millrace.ops.sparse.dense import sparse_tensor_to_dense
from millrace.state.queue_runner import QueueRunner, add_queue_runner
from millrace.state.queues import FIFOQueue, RandomShuffleQueue
from millrace.train.input import string_input_producer


@export(v1="contrib.slim.dataset.Dataset")
class Dataset:
    """What a data set is made of; all arguments are attributes.

    Args:
      data_sources: names or patterns of files.
      reader: a reader class, `tf.TFRecordReader`.
      decoder: has `list_items()` and `decode(record, items)`, as `TFExampleDecoder` has.
      num_samples: how many records there are.
      items_to_descriptions: {item: what it is}.
      kwargs: further attributes.
    """

    def __init__(
        self, data_sources: Any, reader: Any, decoder: Any, num_samples: int,
        items_to_descriptions: Any, **kwargs: Any,
    ):  # fmt: skip
        self.data_sources, self.reader, self.decoder = data_sources, reader, decoder
        self.num_samples, self.items_to_descriptions = num_samples, items_to_descriptions
        self.__dict__.update(kwargs)


@export(v1="contrib.slim.parallel_reader.parallel_read")
def parallel_read(
    data_sources: Any, reader_class: Any, num_epochs: int | None = None, num_readers: int = 4,
    reader_kwargs: dict[str, Any] | None = None, shuffle: bool = True, dtypes: Any = None,
    capacity: int = 256, min_after_dequeue: int = 128, seed: int | None = None, scope: Any = None,
) -> Any:  # fmt: skip
    """The key and the value of the next record, of several readers that run beside the program.

    ValueError where no file matches `data_sources`.
    """
    sources = data_sources if isinstance(data_sources, (list, tuple)) else [data_sources]
    names = [name for source in sources for name in gfile.Glob(source)]
    if not names:
        raise ValueError(f"No data files found in {data_sources}")
    with name_scope(scope, "parallel_read"):
        files = string_input_producer(names, num_epochs, shuffle=shuffle, seed=seed)
        types = dtypes or ["string", "string"]
        queue: Any = (
            RandomShuffleQueue(capacity, min_after_dequeue, types, seed=seed, name="common_queue")
            if shuffle
            else FIFOQueue(capacity, types, name="common_queue")
        )
        readers = [reader_class(**(reader_kwargs or {})) for _ in range(num_readers)]
        enqueue = [queue.enqueue(reader.read(files)) for reader in readers]
        add_queue_runner(QueueRunner(queue, enqueue))
        return queue.dequeue()


@export(v1="contrib.slim.dataset_data_provider.DatasetDataProvider")
class DatasetDataProvider:
    """The items of a data set's next record: `provider.get(["image", "label"])`."""

    def __init__(
        self, dataset: Dataset, num_readers: int = 1, reader_kwargs: Any = None,
        shuffle: bool = True, num_epochs: int | None = None, common_queue_capacity: int = 256,
        common_queue_min: int = 128, record_key: str = "record_key", seed: int | None = None,
        scope: Any = None,
    ):  # fmt: skip
        key, data = parallel_read(
            dataset.data_sources, dataset.reader, num_epochs, num_readers, reader_kwargs, shuffle,
            capacity=common_queue_capacity, min_after_dequeue=common_queue_min, seed=seed,
            scope=scope,
        )  # fmt: skip
        items = list(dataset.decoder.list_items())
        if record_key in items:
            raise ValueError(f"record_key {record_key!r} is the name of an item of the data set")
        self._items = dict(zip(items, dataset.decoder.decode(data, items), strict=True))
        self._items[record_key] = key
        self._num_samples = dataset.num_samples

    def get(self, items: list[str]) -> list[Any]:
        """The tensors of items; ValueError for one that there is not."""
        for item in items:
            if item not in self._items:
                raise ValueError(f"there is no item {item!r}; there are {', '.join(self._items)}")
        return [self._items[item] for item in items]

    def list_items(self) -> Any:
        """The names of the items."""
        return self._items.keys()

    def num_samples(self) -> int:
        """How many records there are."""
        return self._num_samples


@export(v1="contrib.slim.tfexample_decoder.ItemHandler")
class ItemHandler:
    """Makes an item of some features of an Example."""

    def __init__(self, keys: Any):
        self.keys = list(keys) if isinstance(keys, (list, tuple)) else [keys]

    def tensors_to_item(self, keys_to_tensors: dict[str, Any]) -> Any:
        """The item of {key: parsed feature}."""
        raise NotImplementedError


@export(v1="contrib.slim.tfexample_decoder.ItemHandlerCallback")
class ItemHandlerCallback(ItemHandler):
    """Makes an item with a function of {key: parsed feature}."""

    def __init__(self, keys: Any, func: Callable[[dict[str, Any]], Any]):
        super().__init__(keys)
        self._func = func

    def tensors_to_item(self, keys_to_tensors: dict[str, Any]) -> Any:
        return self._func(keys_to_tensors)


@export(v1="contrib.slim.tfexample_decoder.BoundingBox")
class BoundingBox(ItemHandler):
    """Boxes [n, 4] of four features: ymin, xmin, ymax and xmax."""

    def __init__(self, keys: Any = None, prefix: str | None = None):
        keys = ["ymin", "xmin", "ymax", "xmax"] if keys is None else keys
        if len(keys) != 4:
            raise ValueError(f"BoundingBox expects 4 keys but got {len(keys)}")
        super().__init__([(prefix or "") + key for key in keys])

    def tensors_to_item(self, keys_to_tensors: dict[str, Any]) -> Any:
        features = [keys_to_tensors[key] for key in self.keys]
        sides = [f.values if isinstance(f, GraphSparseTensor) else f for f in features]
        return array.transpose(array.stack(sides))


@export(v1="contrib.slim.tfexample_decoder.Tensor")
class Tensor(ItemHandler):
    """A feature, dense, in a shape that is given or in the features `shape_keys`."""

    def __init__(
        self, tensor_key: str, shape_keys: Any = None, shape: Any = None, default_value: Any = 0
    ):
        if shape_keys and shape is not None:
            raise ValueError("Cannot specify both shape_keys and shape parameters.")
        if shape_keys and not isinstance(shape_keys, list):
            shape_keys = [shape_keys]
        super().__init__([tensor_key, *(shape_keys or [])])
        self._shape, self._default = shape, default_value

    def tensors_to_item(self, keys_to_tensors: dict[str, Any]) -> Any:
        tensor, *sizes = [keys_to_tensors[key] for key in self.keys]
        shape = self._shape
        if sizes:
            shape = array.concat([array.reshape(_dense(size), [-1]) for size in sizes], 0)
        if isinstance(tensor, GraphSparseTensor):
            return _dense(tensor if shape is None else sparse_reshape(tensor, shape), self._default)
        return tensor if shape is None else array.reshape(tensor, shape)


@export(v1="contrib.slim.tfexample_decoder.SparseTensor")
class SparseTensor(ItemHandler):
    """A sparse tensor of a feature with indices of the last dimension and one with the values.

    Its shape is in the feature `shape_key`, or is `shape`, or that of the indices' feature;
    `densify` makes it dense, with `default_value` elsewhere.
    """

    def __init__(
        self, indices_key: str | None = None, values_key: str | None = None,
        shape_key: str | None = None, shape: Any = None, densify: bool = False,
        default_value: Any = 0,
    ):  # fmt: skip
        keys = [indices_key or "indices", values_key or "values"]
        super().__init__([*keys, shape_key] if shape_key else keys)
        self._shape, self._densify, self._default = shape, densify, default_value

    def tensors_to_item(self, keys_to_tensors: dict[str, Any]) -> Any:
        indices, values, *shapes = [keys_to_tensors[key] for key in self.keys]
        shape = _dense(shapes[0]) if shapes else self._shape or indices.dense_shape
        last = array.reshape(math.cast(indices.values, dtypes.int64), [-1, 1])
        places = array.concat([indices.indices[:, :-1], last], 1)
        tensor = GraphSparseTensor(places, values.values, shape)
        return _dense(tensor, self._default) if self._densify else tensor


def _dense(value: Any, default: Any = 0) -> Any:
    if not isinstance(value, GraphSparseTensor):
        return value
    if value.dtype == dtypes.string and default == 0:
        default = ""
    return sparse_tensor_to_dense(value, default)


@export(v1="contrib.slim.tfexample_decoder.Image")
class Image(ItemHandler):
    """An image that is encoded in one feature, in a format that another names: png, raw or jpeg."""

    def __init__(
        self, image_key: str | None = None, format_key: str | None = None, shape: Any = None,
        channels: int = 3,
    ):  # fmt: skip
        super().__init__([image_key or "image/encoded", format_key or "image/format"])
        self._shape, self._channels = shape, channels

    def tensors_to_item(self, keys_to_tensors: dict[str, Any]) -> Any:
        data, kind = (keys_to_tensors[key] for key in self.keys)

        def is_called(name: str) -> Any:
            return math.logical_or(math.equal(kind, name), math.equal(kind, name.upper()))

        def png() -> Any:
            return decode_png(data, self._channels)

        choices: list[Any] = [(is_called("raw"), lambda: decode_raw(data, dtypes.uint8))]
        if self._channels > 3:  # which JPEG has not
            image = case(choices, default=png, exclusive=True)
        else:
            choices.append((is_called("png"), png))
            image = case(choices, default=lambda: decode_jpeg(data, self._channels), exclusive=True)
        if self._shape is not None:
            return array.reshape(image, self._shape)
        image.set_shape([None, None, self._channels])
        return image


@export(v1="contrib.slim.tfexample_decoder.TFExampleDecoder")
class TFExampleDecoder:
    """Decodes Examples: parses {key: FixedLenFeature or VarLenFeature}, then makes the items."""

    def __init__(self, keys_to_features: dict[str, Any], items_to_handlers: dict[str, ItemHandler]):
        self._features, self._handlers = keys_to_features, items_to_handlers

    def list_items(self) -> list[str]:
        """The names of the items."""
        return list(self._handlers)

    def decode(self, serialized_example: Any, items: list[str] | None = None) -> list[Any]:
        """The items, all by default, of a serialized Example."""
        parsed = parse_single_example(serialized_example, self._features)
        for key in sorted(self._features):
            feature = self._features[key]
            if hasattr(feature, "shape") and feature.shape is not None:
                parsed[key] = array.reshape(parsed[key], feature.shape)
        handlers = [self._handlers[item] for item in items or self._handlers]
        return [h.tensors_to_item({key: parsed[key] for key in h.keys}) for h in handlers]
