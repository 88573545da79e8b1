"""Adding a MetaGraph to a graph, with the saver for its variables."""

from typing import Any

from millrace import protos
from millrace.checkpoint.meta_graph import (
    import_scoped_meta_graph_with_return_elements,
    read_meta_graph_file,
)
from millrace.checkpoint.saver import Saver
from millrace.core import logging
from millrace.core.export import export
from millrace.core.text import path_to_str
from millrace.state.variable_lists import _all_saveable_objects


@export(v1="train.import_meta_graph")
def import_meta_graph(
    meta_graph_or_file: Any, clear_devices: bool = False, import_scope: str | None = None,
    **kwargs: Any,
) -> Saver | None:  # fmt: skip
    """Adds a MetaGraph, given as a message or a file, to the default graph, with its collections.

    Args:
      clear_devices: leaves out where operations run.
      import_scope: the scope to add it below.
      input_map: tensors of this graph for names of those that they replace.
      return_elements: see `import_meta_graph_with_return_elements`.

    Returns: the saver for its variables, or None where it has none. OSError for a file that is not
    there or no MetaGraph, ValueError for a graph that is none.
    """
    return import_meta_graph_with_return_elements(
        meta_graph_or_file, clear_devices, import_scope, **kwargs
    )[0]


def import_meta_graph_with_return_elements(
    meta_graph_or_file: Any, clear_devices: bool = False, import_scope: str | None = None,
    return_elements: Any = None, **kwargs: Any,
) -> tuple[Saver | None, list[Any] | None]:  # fmt: skip
    """As `import_meta_graph`; gives also the operations and tensors named in `return_elements`."""
    meta_graph_def = meta_graph_or_file
    if not isinstance(meta_graph_def, protos.MetaGraphDef):
        meta_graph_def = read_meta_graph_file(path_to_str(meta_graph_or_file))
    variables, elements = import_scoped_meta_graph_with_return_elements(
        meta_graph_def, clear_devices=clear_devices, import_scope=import_scope,
        return_elements=return_elements, **kwargs,
    )  # fmt: skip
    if meta_graph_def.HasField("saver_def"):
        scope = import_scope
        for name, variable in variables.items():  # the scope is another where that was taken
            scope = variable.name[: -len(name)]
            break
        saver_def = protos.SaverDef()
        saver_def.CopyFrom(meta_graph_def.saver_def)
        return Saver(saver_def=saver_def, name=scope), elements
    if _all_saveable_objects(scope=import_scope):
        return Saver(), elements
    logging.info("Saver not created because there are no variables in the graph to restore")
    return None, elements
