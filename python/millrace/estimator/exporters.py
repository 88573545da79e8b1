"""What exports a model while it is trained."""

import os
from typing import Any, Callable

from millrace.core.export import export
from millrace.io import gfile


@export(v1="estimator.Exporter")
class Exporter:
    """The base: exports a model after an evaluation."""

    @property
    def name(self) -> str:
        """The name of the folder that it exports to."""
        raise NotImplementedError(f"{type(self).__name__} has no name")

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any,
        is_the_final_export: bool,
    ) -> Any:  # fmt: skip
        """Exports, or not; gives the path, or None."""
        raise NotImplementedError(f"{type(self).__name__} exports nothing")


class _SavedModelExporter(Exporter):
    """Exports by `export_saved_model`."""

    def __init__(
        self, name: str, serving_input_receiver_fn: Callable[[], Any], assets_extra: Any,
        as_text: bool,
    ):  # fmt: skip
        if not name:
            raise ValueError(f'"{name}" is no name of an exporter.')
        self._name = name
        self._serving_input_receiver_fn = serving_input_receiver_fn
        self._assets_extra = assets_extra
        self._as_text = as_text

    @property
    def name(self) -> str:
        """The name of the folder that it exports to."""
        return self._name

    def _export(self, estimator: Any, export_path: str, checkpoint_path: str) -> bytes:
        return estimator.export_saved_model(
            export_path, self._serving_input_receiver_fn, assets_extra=self._assets_extra,
            as_text=self._as_text, checkpoint_path=checkpoint_path,
        )  # fmt: skip


@export(v1="estimator.FinalExporter")
class FinalExporter(_SavedModelExporter):
    """Exports the model once, at the end."""

    def __init__(
        self, name: str, serving_input_receiver_fn: Callable[[], Any], assets_extra: Any = None,
        as_text: bool = False,
    ):  # fmt: skip
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text)

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any,
        is_the_final_export: bool,
    ) -> Any:  # fmt: skip
        """Exports at the end."""
        if not is_the_final_export:
            return None
        return self._export(estimator, export_path, checkpoint_path)


@export(v1="estimator.LatestExporter")
class LatestExporter(_SavedModelExporter):
    """Exports the model after every evaluation, and keeps the last `exports_to_keep`."""

    def __init__(
        self, name: str, serving_input_receiver_fn: Callable[[], Any], assets_extra: Any = None,
        as_text: bool = False, exports_to_keep: int | None = 5,
    ):  # fmt: skip
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text)
        if exports_to_keep is not None and exports_to_keep <= 0:
            raise ValueError("`exports_to_keep`, if provided, must be positive number")
        self._exports_to_keep = exports_to_keep

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any,
        is_the_final_export: bool,
    ) -> Any:  # fmt: skip
        """Exports, and deletes what is too old."""
        out = self._export(estimator, export_path, checkpoint_path)
        if self._exports_to_keep is not None:
            numbered = sorted(
                (name for name in map(_plain, gfile.ListDirectory(export_path)) if name.isdigit()),
                key=int,
            )
            for name in numbered[: -self._exports_to_keep]:
                gfile.DeleteRecursively(os.path.join(export_path, name))
        return out


def _plain(name: str) -> str:
    return name.rstrip("/")
