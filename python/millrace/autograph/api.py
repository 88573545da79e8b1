"""The public functions of `tf.autograph`."""

import ast
import enum
import functools
import types
from typing import Any, Callable

from millrace.autograph import convert, lists
from millrace.autograph.errors import ConversionError
from millrace.core.export import export


@export(v1="autograph.experimental.Feature", v2="autograph.experimental.Feature")
class Feature(enum.Enum):
    """What conversion may do besides; `ALL` is all of it."""

    ALL = "ALL"
    AUTO_CONTROL_DEPS = "AUTO_CONTROL_DEPS"
    ASSERT_STATEMENTS = "ASSERT_STATEMENTS"
    BUILTIN_FUNCTIONS = "BUILTIN_FUNCTIONS"
    EQUALITY_OPERATORS = "EQUALITY_OPERATORS"
    LISTS = "LISTS"
    NAME_SCOPES = "NAME_SCOPES"

    @classmethod
    def all(cls) -> tuple["Feature", ...]:
        """All features there are."""
        return tuple(cls.__members__.values())

    @classmethod
    def all_but(cls, exclude: Any) -> tuple["Feature", ...]:
        """All features but one, or but several."""
        left_out = exclude if isinstance(exclude, (list, tuple, set)) else (exclude,)
        return tuple(each for each in cls.all() if each not in left_out)


def features_of(options: Any) -> frozenset[str]:
    """The names of the features that `experimental_autograph_options` asks for."""
    if options is None:
        return frozenset()
    given = options if isinstance(options, (list, tuple, set, frozenset)) else (options,)
    names = set()
    for each in given:
        if not isinstance(each, Feature):
            raise TypeError(f"expected a tf.autograph.experimental.Feature, got {each!r}")
        names |= {f.name for f in Feature} if each is Feature.ALL else {each.name}
    return frozenset(names)


@export(v1="autograph.experimental.set_loop_options", v2="autograph.experimental.set_loop_options")
def set_loop_options(
    parallel_iterations: Any = None, swap_memory: Any = None, maximum_iterations: Any = None,
    shape_invariants: Any = None,
) -> None:  # fmt: skip
    """In a loop of a converted function: what its `tf.while_loop` is called with.

    `shape_invariants`: (value, shape) pairs, of values that the loop changes. Where the loop is
    Python's it has no effect.
    """
    del parallel_iterations, swap_memory, maximum_iterations, shape_invariants


@export(v1="autograph.to_graph", v2="autograph.to_graph")
def to_graph(
    entity: Any, recursive: bool = True, experimental_optional_features: Any = None
) -> Any:
    """The converted form of a function, which `tf.function` would trace.

    ConversionError where it has none: no source, or nothing that could be converted.
    """
    del recursive
    function = entity.__func__ if isinstance(entity, types.MethodType) else entity
    if not isinstance(function, types.FunctionType):
        raise ConversionError(
            f"converting {entity}: ValueError: Cannot apply autograph to a function that doesn't "
            "expose a __code__ object. If this is a @tf.function, try passing f.python_function "
            "instead."
        )
    return convert.make(function, features_of(experimental_optional_features))


@export(v1="autograph.to_code", v2="autograph.to_code")
def to_code(entity: Any, recursive: bool = True, experimental_optional_features: Any = None) -> str:
    """The source of the converted form of a function, for reading."""
    del recursive
    function = entity.__func__ if isinstance(entity, types.MethodType) else entity
    if not isinstance(function, types.FunctionType):
        raise ConversionError(f"converting {entity}: it is no Python function")
    node, _ = convert.converted_node(function, features_of(experimental_optional_features))
    if not isinstance(node, ast.Lambda):
        node.name = f"tf__{node.name}"
    return ast.unparse(ast.fix_missing_locations(node)) + "\n"


def for_tracing(function: Callable[..., Any], autograph: bool, options: Any) -> Callable[..., Any]:
    """What tf.function traces for a Python function."""
    features = features_of(options)

    def run(*args: Any, **kwargs: Any) -> Any:
        if not autograph:
            with convert.disabled():
                return function(*args, **kwargs)
        with convert.enabled():
            return lists.settled(convert.converted(function, features)(*args, **kwargs))

    return functools.update_wrapper(run, function)
