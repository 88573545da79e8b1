"""Functions that take variables, made to take their values: for graphs that are frozen."""

from typing import Any

from millrace import protos

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


def pass_values_to_calls(graph_def: Any, values: dict[str, int]) -> None:
    """Makes the calls of functions in a GraphDef take values where they took variables.

    `values`: {name of a node that was a variable's handle and is a constant now: type}. Functions
    are copied for each combination of values that they are called with, and those that nothing
    calls any more are removed. ValueError for a function that needs a variable as such, to write it
    or to hand it on.
    """
    library = _Library(graph_def)
    for node in graph_def.node:
        library.rewrite_call(node, values)
    library.keep_used()


class _Library:
    def __init__(self, graph_def: Any):
        self._graph = graph_def
        self._functions = {f.signature.name: f for f in graph_def.library.function}
        self._made: dict[tuple[str, tuple[tuple[int, int], ...]], str] = {}

    def rewrite_call(self, node: Any, values: dict[str, int]) -> bool:
        """Points a node that calls a function with some of `values` to a function that takes them;
        gives whether it was one."""
        if node.op not in _CALLS:
            return False
        data = [name for name in node.input if not name.startswith("^")]
        given = {i: values[n] for i, name in enumerate(data) if (n := _source(name)) in values}
        types = node.attr["Tin"].list.type
        if not given or len(types) != len(data):
            return False
        made = self._specialised(node.attr["f"].func.name, given)
        if made is None:
            return False
        node.attr["f"].func.name = made
        for i, dtype in given.items():
            types[i] = dtype
        return True

    def _specialised(self, name: str, given: dict[int, int]) -> str | None:
        """The name of the function that takes values for its arguments of these numbers; None where
        there is no function to make it from."""
        key = (name, tuple(sorted(given.items())))
        if key in self._made:
            return self._made[key]
        original = self._functions.get(name)
        if original is None or max(given) >= len(original.signature.input_arg):
            return None
        copy = protos.FunctionDef()
        copy.CopyFrom(original)
        number = 0
        while (new_name := f"{name}_frozen_{number}") in self._functions:
            number += 1
        copy.signature.name = new_name
        # Before its body is looked at: functions may call themselves.
        self._functions[new_name] = copy
        self._made[key] = new_name
        arguments: dict[str, int] = {}
        for i, dtype in given.items():
            argument = copy.signature.input_arg[i]
            argument.type = dtype
            argument.ClearField("handle_data")
            arguments[argument.name] = dtype
            if i in copy.arg_attr:
                del copy.arg_attr[i]
        self._rewrite_body(copy, arguments)
        return new_name

    def _rewrite_body(self, function: Any, arguments: dict[str, int]) -> None:
        reads = set()
        for node in function.node_def:
            taken = [s for name in node.input if (s := _source(name)) in arguments]
            if not taken:
                continue
            if node.op == "ReadVariableOp":
                reads.add(node.name)
                node.op = "Identity"
                node.attr["T"].type = arguments[taken[0]]
                if "dtype" in node.attr:
                    del node.attr["dtype"]
            elif not self.rewrite_call(node, arguments):
                raise ValueError(
                    f"{node.op} '{node.name}' in function '{function.signature.name}' needs "
                    f"'{taken[0]}' as a variable"
                )
        for name in function.ret.values():
            if _source(name) in arguments:
                raise ValueError(f"function '{function.signature.name}' gives a variable back")
        # The outputs of the two ops have different names.
        for node in function.node_def:
            for i, name in enumerate(node.input):
                node.input[i] = _output_of_read(name, reads)
        for key in list(function.ret):
            function.ret[key] = _output_of_read(function.ret[key], reads)

    def keep_used(self) -> None:
        """Leaves the functions that the graph's nodes, or functions that they call, name."""
        used: set[str] = set()
        todo = [name for node in self._graph.node for name in _functions_of(node)]
        while todo:
            name = todo.pop()
            if name in self._functions and name not in used:
                used.add(name)
                body = self._functions[name].node_def
                todo += [called for node in body for called in _functions_of(node)]
        kept = [self._functions[name] for name in self._functions if name in used]
        gradients = [g for g in self._graph.library.gradient if g.function_name in used]
        library = protos.FunctionDefLibrary()
        library.function.extend(kept)
        library.gradient.extend(gradients)
        self._graph.library.CopyFrom(library)


def _source(name: str) -> str:
    return name.partition(":")[0]


def _output_of_read(name: str, reads: set[str]) -> str:
    source, colon, output = name.partition(":")
    return f"{source}:output:0" if colon and source in reads and output == "value:0" else name


def _functions_of(node: Any) -> list[str]:
    out = [node.op]  # a function may be called as an op of its name
    for attr in node.attr.values():
        kind = attr.WhichOneof("value")
        if kind == "func":
            out.append(attr.func.name)
        elif kind == "list":
            out += [function.name for function in attr.list.func]
    return out
