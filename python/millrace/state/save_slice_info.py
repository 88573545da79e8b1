"""Which part of a larger variable a variable is."""

from typing import Any

from millrace import protos
from millrace.graph.keys import prepend_name_scope, strip_name_scope


class SaveSliceInfo:
    """Which part of a larger variable a variable is.

    Args:
      full_name, full_shape: of the larger variable.
      var_offset, var_shape: where this part begins in it, and its shape.
    """

    def __init__(
        self, full_name: str | None = None, full_shape: Any = None, var_offset: Any = None,
        var_shape: Any = None, save_slice_info_def: Any = None, import_scope: str | None = None,
    ):  # fmt: skip
        if save_slice_info_def is not None:
            self.full_name = prepend_name_scope(save_slice_info_def.full_name, import_scope)
            self.full_shape = list(save_slice_info_def.full_shape)
            self.var_offset = list(save_slice_info_def.var_offset)
            self.var_shape = list(save_slice_info_def.var_shape)
        else:
            self.full_name = full_name
            self.full_shape = full_shape
            self.var_offset = var_offset
            self.var_shape = var_shape

    @property
    def spec(self) -> str:
        """The part in the words that checkpoints use: "10 4 0,5:0,4"."""
        shape = " ".join(str(int(d)) for d in self.full_shape)
        pairs = zip(self.var_offset, self.var_shape, strict=True)
        return f"{shape} " + ":".join(f"{int(o)},{int(s)}" for o, s in pairs)

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The part as a SaveSliceInfoDef; None when it is not below `export_scope`."""
        if export_scope is not None and not self.full_name.startswith(export_scope):
            return None
        return protos.SaveSliceInfoDef(
            full_name=strip_name_scope(self.full_name, export_scope),
            full_shape=[int(d) for d in self.full_shape],
            var_offset=[int(d) for d in self.var_offset],
            var_shape=[int(d) for d in self.var_shape],
        )
