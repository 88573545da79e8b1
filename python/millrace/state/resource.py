"""Objects whose state is a resource: a table, a model of another library, and so on."""

from typing import Any, Callable

from millrace import _core
from millrace.core.export import export
from millrace.core.trackable import Trackable
from millrace.eager.function import function
from millrace.graph.default_graph import device


@export(v2="saved_model.experimental.TrackableResource")
class TrackableResource(Trackable):
    """State behind a handle, which `resource_handle` gives.

    Subclasses say how it comes to be: `_create_resource` returns the handle, `_initialize` fills
    the resource. A SavedModel has both as functions, which run when it is loaded. The resource goes
    with the object; `_destroy_resource` may say how.
    """

    def __init__(self, device: str = ""):
        self._resource_device = device
        self._resource_handle: Any = None

    def _create_resource(self) -> Any:
        """Makes the resource and returns its handle."""
        raise NotImplementedError("TrackableResource._create_resource not implemented.")

    def _initialize(self) -> Any:
        """Fills the resource, where that is needed."""

    def _destroy_resource(self) -> Any:
        """Destroys the resource."""
        _core.destroy_resource(self._resource_handle)

    @property
    def resource_handle(self) -> Any:
        """The handle; made when it is first asked for."""
        if self._resource_handle is None:
            with _core.init_scope(), device(self._resource_device or None):
                self._resource_handle = self._create_resource()
        return self._resource_handle

    def __del__(self) -> None:
        if not _core.is_eager_tensor(self.__dict__.get("_resource_handle")):
            return  # none, or that of a graph, whose sessions have the resource
        try:
            self._destroy_resource()
        except Exception:  # the interpreter is ending, or somebody else was faster
            return

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        children = super()._trackable_children(save_type, **kwargs)
        if save_type == "savedmodel":
            children.update(resource_functions(self))
            if type(self)._destroy_resource is not TrackableResource._destroy_resource:
                children["_destroy_resource"] = _traced(lambda: self._destroy_resource())
        return children


def resource_functions(of: Any) -> dict[str, Any]:
    """The functions by which a SavedModel makes an object's resource and fills it."""

    def initialize() -> int:
        of._initialize()
        return 1  # graphs of TensorFlow 1 wait for a tensor

    return {
        "_create_resource": _traced(lambda: of._create_resource()),
        "_initialize": _traced(initialize),
    }


def _traced(code: Callable[[], Any]) -> Any:
    return function(code, input_signature=[], autograph=False)
