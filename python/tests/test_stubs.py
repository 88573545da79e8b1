"""The stubs say what is there: signatures of the generated functions, and every public name."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import millrace
import millrace.compat.v1 as tf
from millrace import gen_ops, raw_ops
from millrace._names import V1, V2

PACKAGE = Path(millrace.__file__).parent


def stub_signatures(path):
    """{function: [(name, has a default, keyword only)]} of a stub."""
    out = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            args = node.args
            plain = len(args.args) - len(args.defaults)
            names = [(a.arg, i >= plain, False) for i, a in enumerate(args.args)]
            names += [
                (a.arg, d is not None, True)
                for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)
            ]
            out[node.name] = names
    return out


@pytest.mark.parametrize("module", [gen_ops, raw_ops], ids=lambda m: m.__name__)
def test_signatures(module):
    stubs = stub_signatures(PACKAGE / f"{module.__name__.split('.')[-1]}.pyi")
    functions = {n: f for n, f in vars(module).items() if inspect.isfunction(f)}
    assert set(functions) == set(stubs)
    for name, function in functions.items():
        parameters = inspect.signature(function).parameters.values()
        found = [(p.name, p.default is not p.empty, p.kind is p.KEYWORD_ONLY) for p in parameters]
        assert found == stubs[name], name
        assert function.__doc__


def resolve(path):
    value = tf
    for part in path.split("."):
        value = getattr(value, part)
    return value


def test_every_public_name_loads_and_is_documented():
    undocumented = []
    for path in V1:
        value = resolve(path)
        if (inspect.isfunction(value) or inspect.isclass(value)) and not value.__doc__:
            undocumented.append(path)
    assert not undocumented


def test_names_of_both_faces_are_real():
    for target in {*V1.values(), *V2.values()}:
        module, _, attribute = target.partition(":")
        assert hasattr(importlib.import_module(module), attribute), target
    assert V2["math.log"] == V1["log"] == V1["math.log"] and "log" not in V2
    assert "Session" in V1 and "Session" not in V2


def test_types_and_shapes_need_no_face():
    assert millrace.float32 is tf.float32 and millrace.as_dtype("half") is millrace.float16
    assert millrace.float8_e5m2.name == "float8_e5m2"
    assert millrace.TensorShape([1, None]).as_list() == [1, None]


def test_every_namespace_has_a_stub():
    for path in V1:
        space = path.rpartition(".")[0].split(".") if "." in path else []
        stub = PACKAGE.joinpath("compat", "v1", *space, "__init__.pyi")
        assert path.rpartition(".")[2] in stub.read_text(), path


def test_an_unknown_name_says_what_is_like_it():
    with pytest.raises(AttributeError, match="relu"):
        tf.nn.reluu  # noqa: B018
    with pytest.raises(AttributeError, match=r"compat\.v1"):
        millrace.placeholder  # noqa: B018
