"""Answers `import tensorflow` and all that is below it with Millrace.

`install()` puts a finder in front of Python's own. `tensorflow` and `tensorflow.compat.v1` stand
for `millrace.compat.v1`. Modules inside TensorFlow (`tensorflow.python.ops.array_ops`,
`tensorflow.core.protobuf.config_pb2`, `tensorflow.contrib.rnn.python.ops.core_rnn_cell`) have no
counterpart file here: their names are looked for among the public ones, first in the namespaces
that the module belongs to, then in all.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from millrace._names import V1
from millrace.compat.tensorflow.inner import find as find_inner
from millrace.core.suggest import unknown_name_message

# The public namespaces in the order in which a name is looked for where nothing better is known.
_NAMESPACES = (
    "", "nn", "train", "math", "image", "linalg", "sparse", "strings", "random", "io", "summary",
    "losses", "metrics", "layers", "errors", "initializers", "test", "debugging", "gfile",
    "logging", "app", "flags", "compat", "resource_loader", "python_io", "graph_util",
    "saved_model", "nn.rnn_cell", "contrib.rnn", "contrib.layers", "contrib.framework",
    "contrib.util",
)  # fmt: skip

# Modules inside TensorFlow, by the last part of their name, to the namespaces that come first.
_MODULE_NAMESPACES = {
    "app": ("app",),
    "candidate_sampling_ops": ("nn", "random"),
    "compat": ("compat",),
    "convolutional": ("layers",),
    "core": ("layers",),
    "core_rnn": ("contrib.rnn", "nn"),
    "core_rnn_cell": ("nn.rnn_cell", "contrib.rnn"),
    "ctc_ops": ("nn",),
    "embedding_ops": ("nn",),
    "errors": ("errors",),
    "errors_impl": ("errors",),
    "flags": ("app.flags", "flags"),
    "gfile": ("gfile",),
    "googletest": ("test",),
    "gradient_checker": ("test",),
    "graph_util": ("graph_util",),
    "image_ops": ("image",),
    "image_ops_impl": ("image",),
    "layers": ("layers", "contrib.layers"),
    "losses": ("losses",),
    "losses_impl": ("losses",),
    "metrics": ("metrics",),
    "metrics_impl": ("metrics",),
    "nn": ("nn",),
    "nn_impl": ("nn",),
    "nn_ops": ("nn",),
    "normalization": ("layers",),
    "pooling": ("layers",),
    "python_io": ("python_io",),
    "resource_loader": ("resource_loader",),
    "rnn": ("nn", "contrib.rnn"),
    "rnn_cell": ("nn.rnn_cell", "contrib.rnn"),
    "rnn_cell_impl": ("nn.rnn_cell", "contrib.rnn"),
    "saved_model": ("saved_model",),
    "sets": ("sets",),
    "summary": ("summary",),
    "test": ("test",),
    "test_util": ("test",),
    "tf_logging": ("logging",),
    "tf_record": ("python_io",),
    "writer": ("summary",),
}

# Names that are called otherwise in public: MODULE.NAME to the paths to try.
_RENAMED = {
    "array_ops.size_internal": ("size",),
    "data_flow_ops.StagingArea": ("contrib.staging.StagingArea",),
    "dtypes.as_dtype": ("as_dtype",),
    "file_io.FileIO": ("gfile.GFile",),
    "file_io.copy": ("gfile.Copy",),
    "file_io.create_dir": ("gfile.MkDir",),
    "file_io.delete_file": ("gfile.Remove",),
    "file_io.delete_recursively": ("gfile.DeleteRecursively",),
    "file_io.file_exists": ("gfile.Exists",),
    "file_io.get_matching_files": ("gfile.Glob",),
    "file_io.is_directory": ("gfile.IsDirectory",),
    "file_io.list_directory": ("gfile.ListDirectory",),
    "file_io.recursive_create_dir": ("gfile.MakeDirs",),
    "file_io.rename": ("gfile.Rename",),
    "file_io.stat": ("gfile.Stat",),
    "file_io.walk": ("gfile.Walk",),
    "function.Defun": ("contrib.framework.Defun",),
    "init_ops.Constant": ("constant_initializer",),
    "init_ops.Ones": ("ones_initializer",),
    "init_ops.Zeros": ("zeros_initializer",),
    "layers.xavier_initializer": (
        "contrib.layers.xavier_initializer", "glorot_uniform_initializer",
    ),
    "normalization.batch_norm": ("layers.batch_normalization",),
    "pywrap_tensorflow.NewCheckpointReader": ("train.NewCheckpointReader",),
    "rnn_cell_impl._RNNCell": ("nn.rnn_cell.RNNCell", "contrib.rnn.RNNCell"),
    "tensor_util.MakeNdarray": ("make_ndarray", "contrib.util.make_ndarray"),
    "tensor_util.constant_value": ("get_static_value", "contrib.util.constant_value"),
    "tensor_util.make_tensor_proto": ("make_tensor_proto", "contrib.util.make_tensor_proto"),
    "test_util.TensorFlowTestCase": ("test.TestCase",),
}  # fmt: skip

# Modules inside TensorFlow whose names a module of Millrace, or of Python's, has.
_OWN_MODULES = {
    "app": "millrace.compat.v1.program",
    "basic_session_run_hooks": "millrace.train.hooks",
    "builder": "millrace.saved_model.builder",
    "builder_impl": "millrace.saved_model.builder",
    "compat": "millrace.core.text",
    "constants": "millrace.saved_model.constants",
    "deprecation": "millrace.compat.v1.contrib.deprecation",
    "device": "millrace.core.device",
    "device_lib": "millrace.graph.device_list",
    "device_setter": "millrace.distributed.device_setter",
    "dtypes": "millrace.core.dtypes",
    "errors": "millrace.core.errors",
    "errors_impl": "millrace.core.errors",
    "flags": "millrace.compat.v1.flags",
    "gfile": "millrace.io.gfile",
    "loader": "millrace.saved_model.loader",
    "loader_impl": "millrace.saved_model.loader",
    "main_op": "millrace.saved_model.main_op",
    "main_op_impl": "millrace.saved_model.main_op",
    "meta_graph": "millrace.checkpoint.meta_graph",
    "monitored_session": "millrace.train.monitored_session",
    "moving_averages": "millrace.train.moving_averages",
    "nest": "millrace.core.nest",
    "optimizer": "millrace.train.optimizer",
    "resource_loader": "millrace.io.resource_loader",
    "saveable_object": "millrace.checkpoint.saveable",
    "saver": "millrace.checkpoint.saver_builder",
    "session_run_hook": "millrace.train.session_run_hook",
    "signature_constants": "millrace.saved_model.constants",
    "signature_def_utils": "millrace.saved_model.signatures",
    "signature_def_utils_impl": "millrace.saved_model.signatures",
    "slot_creator": "millrace.train.slots",
    "tag_constants": "millrace.saved_model.constants",
    "tensor_shape": "millrace.core.shapes",
    "tf_contextlib": "contextlib",
    "tf_inspect": "inspect",
    "tf_logging": "millrace.core.logging",
    "timeline": "millrace.graph.timeline",
    "versions": "millrace.core.versions",
    "warm_starting_util": "millrace.checkpoint.warm_start",
}

# Modules that stand for others as a whole.
_WHOLE_MODULES = {
    "tensorflow.examples.tutorials.mnist.input_data": "millrace.compat.tensorflow.mnist",
    "tensorflow.contrib.learn.datasets.mnist": "millrace.compat.tensorflow.mnist",
    "tensorflow.contrib.learn.python.learn.datasets.mnist": "millrace.compat.tensorflow.mnist",
}

# Packages inside TensorFlow; their parts are modules.
_PACKAGES = {
    "tensorflow." + name
    for name in (
        "python", "python.client", "python.estimator", "python.estimator.inputs",
        "python.feature_column", "python.framework", "python.layers", "python.lib",
        "python.lib.io", "python.ops", "python.platform", "python.saved_model", "python.summary",
        "python.summary.writer", "python.training", "python.util", "core", "core.example",
        "core.framework", "core.lib", "core.lib.core", "core.protobuf", "core.util", "examples",
        "examples.tutorials", "examples.tutorials.mnist", "contrib", "contrib.learn",
        "contrib.learn.datasets",
    )
}  # fmt: skip

# Packages that have names of their own beside these modules.
_MIXED_PACKAGES = {
    "tensorflow.python.ops.losses": ("losses", "losses_impl", "util"),
}

# Public namespaces in which a part of contrib has names with the same meaning. The layers, losses
# and metrics of contrib are not here: they take other arguments than the public ones.
_CONTRIB_NAMESPACES = {
    "framework": ("train", ""),
    "rnn": ("nn.rnn_cell", "nn"),
    "util": ("",),
}

_DELEGATED = {"__version__", "__git_version__", "__compiler_version__"}


def _snake_case(op: str) -> str:
    """The name of a generated function for an op: BatchMatMul to batch_mat_mul."""
    spaced = re.sub(r"([a-z0-9])([A-Z])|([A-Z])(?=[A-Z][a-z])", r"\1\3_\2", op)
    return spaced.lower()


class _Alias(ModuleType):
    """A module whose names are found when they are asked for, and kept."""

    def __init__(
        self,
        name: str,
        find: Callable[[str], Any],
        names: Callable[[], Iterable[str]],
    ) -> None:
        super().__init__(name, f"{name}, answered by Millrace.")
        self.__path__: list[str] = []
        self._find = find
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return [each for each in self._names() if not each.startswith("_")]
        if name.startswith("__") and name.endswith("__") and name not in _DELEGATED:
            raise AttributeError(name)
        value = self._find(name)
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._names()})


class TensorflowFinder:
    """Finds `tensorflow` and the modules below it, over the names of a package."""

    def __init__(self, package: ModuleType | None = None) -> None:
        """`package` has the public names; by default it is `millrace.compat.v1`."""
        self._package = package
        self._raw_ops: dict[str, str] | None = None
        self._modules: dict[str, ModuleType] = {}

    # What Python's import machinery calls.

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of a module of TensorFlow, None for other modules.

        Raises ModuleNotFoundError, with what is known of the name, where Millrace has none.
        """
        if fullname != "tensorflow" and not fullname.startswith("tensorflow."):
            return None
        if not self._is_module(fullname):
            # Without a `name`, since Python drops the message of an error that has one.
            raise ModuleNotFoundError(self._unknown(fullname.partition(".")[2]))
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module of a spec."""
        return self.module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: the names of a module are found when they are asked for."""

    # What the names stand for.

    @property
    def package(self) -> ModuleType:
        """The package that has the public names."""
        if self._package is None:
            self._package = importlib.import_module("millrace.compat.v1")
        return self._package

    def module(self, fullname: str) -> ModuleType:
        """The module that stands for `fullname`."""
        if fullname == "tensorflow.compat.v1":
            fullname = "tensorflow"
        made = self._modules.get(fullname)
        if made is None:
            made = self._modules[fullname] = self._make(fullname)
        return made

    def _make(self, fullname: str) -> ModuleType:
        if fullname in _WHOLE_MODULES:
            whole = importlib.import_module(_WHOLE_MODULES[fullname])
            return _Alias(fullname, lambda name: getattr(whole, name), lambda: dir(whole))
        path = fullname.partition(".")[2]
        if fullname in _PACKAGES or fullname in _MIXED_PACKAGES or _is_contrib_package(fullname):
            return _Alias(fullname, lambda name: self._part(fullname, name), lambda: ())
        if self._is_namespace(path) and path.removeprefix("contrib.") not in _CONTRIB_NAMESPACES:
            return _Alias(
                fullname,
                lambda name: self._public(path, name),
                lambda: dir(self._dig(path)),
            )
        return _Alias(fullname, lambda name: self._inner(fullname, name), lambda: ())

    def _is_module(self, fullname: str) -> bool:
        parts = fullname.split(".")
        parent, leaf = ".".join(parts[:-1]), parts[-1]
        if fullname in ("tensorflow", "tensorflow.compat", "tensorflow.compat.v1"):
            return True
        if fullname in _PACKAGES or fullname in _MIXED_PACKAGES or fullname in _WHOLE_MODULES:
            return True
        if parent in _MIXED_PACKAGES:
            return leaf in _MIXED_PACKAGES[parent]
        if parts[1] == "contrib":
            if len(parts) == 3:
                return leaf in _CONTRIB_NAMESPACES or self._is_namespace("contrib." + leaf)
            if _is_contrib_package(fullname) or _is_contrib_package(parent):
                return True
            return self._is_namespace(_without_inner_packages(parts[1:]))
        if parts[1] == "core":
            return parent in _PACKAGES and leaf.endswith("_pb2")
        if parts[1] == "python":
            return parent in _PACKAGES and leaf.islower()
        return parts[1] != "examples" and self._is_namespace(".".join(parts[1:]))

    def _dig(self, path: str) -> Any:
        found: Any = self.package
        for part in path.split(".") if path else ():
            found = getattr(found, part)
        return found

    def _is_namespace(self, path: str) -> bool:
        try:
            return isinstance(self._dig(path), ModuleType)
        except AttributeError:
            return False

    def _first(self, paths: Iterable[str]) -> tuple[Any, ...]:
        """The object at the first of `paths` that is there, as a tuple; empty for none."""
        for path in paths:
            try:
                return (self._dig(path),)
            except AttributeError:
                continue
        return ()

    def _public(self, namespace: str, name: str) -> Any:
        """A name of a public namespace, or a package beside the public ones."""
        found = self._first([f"{namespace}.{name}" if namespace else name])
        fullname = "tensorflow." + (f"{namespace}." if namespace else "") + name
        if found and not (isinstance(found[0], ModuleType) and fullname in _PACKAGES):
            return found[0]
        if self._is_module(fullname):
            return importlib.import_module(fullname)
        raise AttributeError(self._unknown(fullname.partition(".")[2]))

    def _part(self, package: str, name: str) -> Any:
        """A module of a package inside TensorFlow, or a name that it has itself."""
        fullname = f"{package}.{name}"
        mixed = _MIXED_PACKAGES.get(package)
        if package.startswith("tensorflow.contrib"):
            found = self._first([fullname.partition(".")[2]])
            if found and not self._is_module(fullname):
                return found[0]
        if mixed is None and name != name.lower():
            return self._inner(package, name)
        if mixed is not None and name not in mixed:
            return self._inner(package, name)
        if self._is_module(fullname):
            return importlib.import_module(fullname)
        raise AttributeError(self._unknown(fullname.partition(".")[2]))

    def _candidates(self, module: str, name: str) -> Iterator[str]:
        """The public paths that `name` of a module inside TensorFlow may have, best first."""
        parts, leaf = module.split("."), module.rpartition(".")[2]
        yield from _RENAMED.get(f"{leaf}.{name}", ())
        namespaces: list[str] = []
        if parts[1] == "contrib" and len(parts) > 2:
            yield f"{_without_inner_packages(parts[1:])}.{name}"
            for namespace in (".".join(parts[1:3]), *_CONTRIB_NAMESPACES.get(parts[2], ())):
                yield f"{namespace}.{name}" if namespace else name
            return
        if leaf.endswith("_pb2"):
            namespaces += ["", "train", "summary", "saved_model"]
        namespaces += _MODULE_NAMESPACES.get(leaf, ())
        if module.startswith("tensorflow.python.training"):
            namespaces += ["train"]
        if module.startswith("tensorflow.python.ops.losses"):
            namespaces += ["losses"]
        for top in ("estimator", "feature_column"):
            if module.startswith(f"tensorflow.python.{top}"):
                namespaces += [top, f"{top}.inputs", f"{top}.export"]
        for namespace in (*namespaces, *_NAMESPACES):
            yield f"{namespace}.{name}" if namespace else name

    def _inner(self, module: str, name: str) -> Any:
        """What `name` of a module inside TensorFlow is here."""
        leaf = module.rpartition(".")[2]
        own = _OWN_MODULES.get(leaf)
        if own is not None and not name.startswith("_"):
            found = getattr(importlib.import_module(own), name, None)
            home = getattr(found, "__module__", own)
            if found is not None and (home.startswith("millrace.") or home == own):
                return found
        made = find_inner(leaf, name, self.package)
        if made is not None:
            return made
        if leaf.startswith("gen_"):
            raw = self._raw_function(name.lstrip("_"))
            if raw is not None:
                return raw
        for path in self._candidates(module, name):
            found = self._first([path])
            if found and not isinstance(found[0], ModuleType):
                return found[0]
        if leaf.endswith("_pb2"):
            message = _message_class(name)
            if message is not None:
                return message
        raw = self._raw_function(name.lstrip("_"))
        if raw is not None:
            return raw
        if name in _MODULE_NAMESPACES or name in _OWN_MODULES:
            # A module that this one imports: tensorflow.python.ops.rnn has rnn_cell_impl.
            return importlib.import_module(f"{module.rpartition('.')[0]}.{name}")
        raise AttributeError(
            f"{module}.{name}, a name inside TensorFlow, has no public counterpart. "
            + self._unknown(name)
        )

    def _raw_function(self, name: str) -> Any:
        """The op whose generated function is called `name`, taking arguments by position too."""
        try:
            raw_ops = importlib.import_module("millrace.raw_ops")
        except ImportError:
            return None
        if self._raw_ops is None:
            self._raw_ops = {_snake_case(op): op for op in dir(raw_ops) if op[:1].isupper()}
        op = self._raw_ops.get(name)
        return None if op is None else _by_position(getattr(raw_ops, op))

    def _unknown(self, path: str) -> str:
        return unknown_name_message(path, self._available(path))

    def _available(self, path: str) -> Iterator[str]:
        """The public names that may be meant with `path`."""
        if self.package.__name__ == "millrace.compat.v1":
            yield from V1
            return
        for namespace in dict.fromkeys((path.rpartition(".")[0], *_NAMESPACES)):
            found = self._first([namespace])
            for name in dir(found[0]) if found else ():
                if not name.startswith("_"):
                    yield f"{namespace}.{name}" if namespace else name


def _without_inner_packages(parts: list[str]) -> str:
    """contrib.learn.python.learn.datasets as the public contrib.learn.datasets."""
    if len(parts) > 3 and parts[2] == "python":
        parts = [*parts[:2], *parts[4:]]
    return ".".join(parts)


def _is_contrib_package(fullname: str) -> bool:
    """Whether a name in contrib is a folder on the way to the modules of a part of it."""
    parts = fullname.split(".")
    if parts[1:2] != ["contrib"] or len(parts) < 4:
        return False
    return parts[3] == "python" and all(
        part in ("ops", "layers", "framework", "learn", "datasets", "training")
        for part in parts[4:]
    )


def _message_class(name: str) -> Any:
    try:
        protos = importlib.import_module("millrace.protos")
    except ImportError:
        return None
    return getattr(protos, name, None)


def _by_position(function: Any) -> Any:
    """A function of `raw_ops`, which takes keywords only, with arguments by position."""
    names = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > len(names):
            raise TypeError(
                f"{function.__name__} takes at most {len(names)} arguments, got {len(args)}"
            )
        for name, value in zip(names, args, strict=False):
            if name in kwargs:
                raise TypeError(f"{function.__name__} got two values for '{name}'")
            kwargs[name] = value
        return function(**kwargs)

    return call


def install(package: ModuleType | None = None) -> None:
    """Lets `import tensorflow` give the names of `package`, by default `millrace.compat.v1`.

    Where it is installed already, nothing happens.
    """
    if not any(isinstance(finder, TensorflowFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, TensorflowFinder(package))


def uninstall() -> None:
    """Takes back `install`, and forgets the modules that were imported by it."""
    sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, TensorflowFinder)]
    for name in [n for n in sys.modules if n == "tensorflow" or n.startswith("tensorflow.")]:
        if isinstance(sys.modules[name], _Alias):
            del sys.modules[name]
