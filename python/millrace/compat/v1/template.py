"""Templates: functions whose variables are made at the first call and shared by the others."""

import functools
import re
from typing import Any, Callable

from millrace.core import logging
from millrace.core.export import export
from millrace.graph.default_graph import get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.state.variable_lists import global_variables, trainable_variables
from millrace.state.variable_scope import PureVariableScope, unique_variable_scope, variable_scope
from millrace.state.variable_store import KeptVariables


@export(v1="make_template")
def make_template(
    name_: str, func_: Callable[..., Any], create_scope_now_: bool = False,
    unique_name_: str | None = None, custom_getter_: Any = None, **kwargs: Any,
) -> "Template":  # fmt: skip
    """A function that calls `func_` and shares the variables of its `get_variable` between calls.

    Args:
      name_: the name of the scope of its variables, numbered to be new.
      func_: what is called; its variables must be the same in each call.
      create_scope_now_: whether the scope is chosen here rather than in the first call.
      unique_name_: a name for the scope that is taken as it is; for templates of one graph that
        share variables.
      custom_getter_: as of `variable_scope`.
      kwargs: arguments to pass to `func_` in every call.
    """
    if kwargs:
        func_ = functools.partial(func_, **kwargs)
    return Template(name_, func_, create_scope_now_, unique_name_, custom_getter_)


class Template:
    """What `make_template` gives."""

    def __init__(
        self, name: str, func: Callable[..., Any], create_scope_now: bool = False,
        unique_name: str | None = None, custom_getter: Any = None,
    ):  # fmt: skip
        if not name:
            raise ValueError("name cannot be None.")
        self._func = func
        self._name = name
        self._unique_name = unique_name
        self._custom_getter = custom_getter
        self._scope: Any = None
        self._variables_created = False
        self._kept = KeptVariables()  # those that belong to no graph
        if create_scope_now:
            # Without a scope of names: the first call opens that.
            own = unique_name or unique_variable_scope(name)
            with PureVariableScope(own, custom_getter=custom_getter) as scope:
                self._scope = scope

    def _call(self, args: Any, kwargs: Any) -> Any:
        graph = get_default_graph()
        variables = len(graph.get_collection_ref(GraphKeys.GLOBAL_VARIABLES))
        trainable = len(graph.get_collection_ref(GraphKeys.TRAINABLE_VARIABLES))
        try:
            result = self._func(*args, **kwargs)
        except Exception as error:
            # The error itself, told where the template is.
            note = f"in the template {self._name!r}"
            if hasattr(error, "add_note"):
                error.add_note(note)
            raise
        if self._variables_created:
            made = graph.get_collection_ref(GraphKeys.TRAINABLE_VARIABLES)[trainable:]
            if made:
                raise ValueError(
                    "New variable(s) created when calling a template after the first time, perhaps "
                    "you used tf.Variable when you meant tf.get_variable: "
                    f"{', '.join(v.name for v in made)}"
                )
            later = graph.get_collection_ref(GraphKeys.GLOBAL_VARIABLES)[variables:]
            if later:
                logging.info(
                    "New variables created when calling a template after the first time, perhaps "
                    "you used tf.Variable when you meant tf.get_variable: %s",
                    ", ".join(v.name for v in later),
                )
        self._variables_created = True
        return result

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._kept:
            return self._call_in_scope(args, kwargs)

    def _call_in_scope(self, args: Any, kwargs: Any) -> Any:
        if self._scope is None:
            with variable_scope(
                self._unique_name, self._name, custom_getter=self._custom_getter
            ) as scope:
                self._scope = scope
                return self._call(args, kwargs)
        if self._variables_created:
            # Only the names of operations are new.
            with variable_scope(self._scope, reuse=True):
                return self._call(args, kwargs)
        with variable_scope(self._scope):
            return self._call(args, kwargs)

    @property
    def name(self) -> str:
        """The name that was asked for."""
        return self._name

    @property
    def func(self) -> Callable[..., Any]:
        """The function that is called."""
        return self._func

    @property
    def variable_scope(self) -> Any:
        """The scope of the variables; None before the first call."""
        return self._scope

    @property
    def variable_scope_name(self) -> str | None:
        """The name of the scope of the variables."""
        if self._scope is None:
            return None
        name = self._scope.name
        return name[:-1] if name.endswith("/") else name

    @property
    def var_scope(self) -> Any:
        """An older name of `variable_scope`."""
        return self._scope

    def _below(self, variables: Callable[..., list[Any]]) -> list[Any]:
        if self._scope is None:
            return []
        own = list(self._kept.variables.values())
        if variables is trainable_variables:
            own = [v for v in own if v.trainable]
        return [*own, *variables(re.escape(self.variable_scope_name + "/"))]

    @property
    def variables(self) -> list[Any]:
        """The variables, trained or not."""
        return self._below(global_variables)

    @property
    def global_variables(self) -> list[Any]:
        """The global variables."""
        return self._below(global_variables)

    @property
    def trainable_variables(self) -> list[Any]:
        """The trainable variables."""
        return self._below(trainable_variables)

    @property
    def trainable_weights(self) -> list[Any]:
        """As `trainable_variables`."""
        return self.trainable_variables
