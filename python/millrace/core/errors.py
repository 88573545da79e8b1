"""The exceptions of failed operations, one class per status code."""

import re
from typing import Any

from millrace.core.export import export
from millrace.core.origin import raised_at

OK = export(v1="errors.OK", v2="errors.OK")(0)
CANCELLED = export(v1="errors.CANCELLED", v2="errors.CANCELLED")(1)
UNKNOWN = export(v1="errors.UNKNOWN", v2="errors.UNKNOWN")(2)
INVALID_ARGUMENT = export(v1="errors.INVALID_ARGUMENT", v2="errors.INVALID_ARGUMENT")(3)
DEADLINE_EXCEEDED = export(v1="errors.DEADLINE_EXCEEDED", v2="errors.DEADLINE_EXCEEDED")(4)
NOT_FOUND = export(v1="errors.NOT_FOUND", v2="errors.NOT_FOUND")(5)
ALREADY_EXISTS = export(v1="errors.ALREADY_EXISTS", v2="errors.ALREADY_EXISTS")(6)
PERMISSION_DENIED = export(v1="errors.PERMISSION_DENIED", v2="errors.PERMISSION_DENIED")(7)
RESOURCE_EXHAUSTED = export(v1="errors.RESOURCE_EXHAUSTED", v2="errors.RESOURCE_EXHAUSTED")(8)
FAILED_PRECONDITION = export(v1="errors.FAILED_PRECONDITION", v2="errors.FAILED_PRECONDITION")(9)
ABORTED = export(v1="errors.ABORTED", v2="errors.ABORTED")(10)
OUT_OF_RANGE = export(v1="errors.OUT_OF_RANGE", v2="errors.OUT_OF_RANGE")(11)
UNIMPLEMENTED = export(v1="errors.UNIMPLEMENTED", v2="errors.UNIMPLEMENTED")(12)
INTERNAL = export(v1="errors.INTERNAL", v2="errors.INTERNAL")(13)
UNAVAILABLE = export(v1="errors.UNAVAILABLE", v2="errors.UNAVAILABLE")(14)
DATA_LOSS = export(v1="errors.DATA_LOSS", v2="errors.DATA_LOSS")(15)
UNAUTHENTICATED = export(v1="errors.UNAUTHENTICATED", v2="errors.UNAUTHENTICATED")(16)


@export(v1=("errors.OpError", "OpError"), v2="errors.OpError")
class OpError(Exception):
    """An operation that failed: its message says which, why, and where it was made."""

    def __init__(self, node_def: Any, op: Any, message: str, error_code: int = UNKNOWN):
        super().__init__(node_def, op, message)
        self._node_def = node_def
        self._op = op
        self._message = message
        self._error_code = error_code

    @property
    def message(self) -> str:
        """What went wrong."""
        return self._message

    @property
    def op(self) -> Any:
        """The operation that failed, where it is known and still there."""
        return self._op

    @property
    def node_def(self) -> Any:
        """The NodeDef of the operation that failed, where it is known."""
        if self._node_def is None and self._op is not None:
            self._node_def = self._op.node_def
        return self._node_def

    @property
    def experimental_payloads(self) -> dict[bytes, bytes]:
        """What the error carries besides its message: nothing."""
        return {}

    @property
    def error_code(self) -> int:
        """The number of the status code."""
        return self._error_code

    def __str__(self) -> str:
        return self._message

    def __reduce__(self) -> Any:
        if type(self) is OpError:
            return OpError, (None, None, self._message, self._error_code)
        return type(self), (None, None, self._message)


class _CodedError(OpError):
    code = UNKNOWN

    def __init__(self, node_def: Any, op: Any, message: str, *_: Any):
        super().__init__(node_def, op, message, self.code)


@export(v1="errors.CancelledError", v2="errors.CancelledError")
class CancelledError(_CodedError):
    """Somebody cancelled the operation: a closed queue or session, another error of the step."""

    code = CANCELLED


@export(v1="errors.UnknownError", v2="errors.UnknownError")
class UnknownError(_CodedError):
    """An error that fits no other class, or that a Python function raised."""

    code = UNKNOWN

    def __init__(self, node_def: Any, op: Any, message: str, error_code: int = UNKNOWN):
        super().__init__(node_def, op, message)
        self._error_code = error_code


@export(v1="errors.InvalidArgumentError", v2="errors.InvalidArgumentError")
class InvalidArgumentError(_CodedError):
    """An operation was given something that it cannot work with."""

    code = INVALID_ARGUMENT


@export(v1="errors.DeadlineExceededError", v2="errors.DeadlineExceededError")
class DeadlineExceededError(_CodedError):
    """The time given was over before the work was done."""

    code = DEADLINE_EXCEEDED


@export(v1="errors.NotFoundError", v2="errors.NotFoundError")
class NotFoundError(_CodedError):
    """A file, an operation or a resource is not there."""

    code = NOT_FOUND


@export(v1="errors.AlreadyExistsError", v2="errors.AlreadyExistsError")
class AlreadyExistsError(_CodedError):
    """Something that should be made is there already."""

    code = ALREADY_EXISTS


@export(v1="errors.PermissionDeniedError", v2="errors.PermissionDeniedError")
class PermissionDeniedError(_CodedError):
    """The caller may not do this."""

    code = PERMISSION_DENIED


@export(v1="errors.UnauthenticatedError", v2="errors.UnauthenticatedError")
class UnauthenticatedError(_CodedError):
    """The caller did not show who it is."""

    code = UNAUTHENTICATED


@export(v1="errors.ResourceExhaustedError", v2="errors.ResourceExhaustedError")
class ResourceExhaustedError(_CodedError):
    """Memory, or another thing of which there is only so much, is used up."""

    code = RESOURCE_EXHAUSTED


@export(v1="errors.FailedPreconditionError", v2="errors.FailedPreconditionError")
class FailedPreconditionError(_CodedError):
    """Something else must happen first: an initialiser, say."""

    code = FAILED_PRECONDITION


@export(v1="errors.AbortedError", v2="errors.AbortedError")
class AbortedError(_CodedError):
    """The operation was stopped half-way, and may be tried again."""

    code = ABORTED


@export(v1="errors.OutOfRangeError", v2="errors.OutOfRangeError")
class OutOfRangeError(_CodedError):
    """Past the end: of a queue, a file, a dataset."""

    code = OUT_OF_RANGE


@export(v1="errors.UnimplementedError", v2="errors.UnimplementedError")
class UnimplementedError(_CodedError):
    """There is no such thing here."""

    code = UNIMPLEMENTED


@export(v1="errors.InternalError", v2="errors.InternalError")
class InternalError(_CodedError):
    """Millrace itself is at fault."""

    code = INTERNAL


@export(v1="errors.UnavailableError", v2="errors.UnavailableError")
class UnavailableError(_CodedError):
    """A server cannot be reached at the moment."""

    code = UNAVAILABLE


@export(v1="errors.DataLossError", v2="errors.DataLossError")
class DataLossError(_CodedError):
    """Data is lost or damaged beyond repair."""

    code = DATA_LOSS


class OutOfScopeError(ValueError, TypeError):
    """A tensor is used in a graph that it does not belong to. TensorFlow 1 calls that a ValueError,
    TensorFlow 2 a TypeError."""


class MismatchedTypesError(InvalidArgumentError, TypeError):
    """An operation that runs at once was given types that do not go together: TensorFlow says so by
    the one or the other, after how far the call has come. Made of a message alone, as TypeErrors
    are."""

    def __init__(self, *args: Any):
        super().__init__(None, None, args[-1])


@export(v2="errors.OperatorNotAllowedInGraphError")
class OperatorNotAllowedInGraphError(TypeError):
    """Python asked for the value of a tensor that has none before its graph runs."""


_CLASSES = {
    cls.code: cls
    for cls in (
        CancelledError, UnknownError, InvalidArgumentError, DeadlineExceededError, NotFoundError,
        AlreadyExistsError, PermissionDeniedError, UnauthenticatedError, ResourceExhaustedError,
        FailedPreconditionError, AbortedError, OutOfRangeError, UnimplementedError, InternalError,
        UnavailableError, DataLossError,
    )
}  # fmt: skip


@export(v1="errors.exception_type_from_error_code")
def exception_type_from_error_code(error_code: int) -> type[OpError]:
    """The class that stands for a status code; KeyError for a number that is none."""
    return _CLASSES[error_code]


@export(v1="errors.error_code_from_exception_type")
def error_code_from_exception_type(cls: type[OpError]) -> int:
    """The status code that a class stands for."""
    for code, known in _CLASSES.items():
        if issubclass(cls, known):
            return code
    raise KeyError(cls)


_NODE = re.compile(r"\[\[\{\{node ([^}]+)\}\}\]\]")


def failed_node(message: str) -> str | None:
    """The name of the operation that a message of the runtime names, if any."""
    found = _NODE.search(message)
    return found.group(1) if found else None


def from_status(code: int, message: str) -> OpError:
    """The exception for a status; the bindings raise it."""
    cls = _CLASSES.get(code)
    if cls is None:
        return UnknownError(None, None, message, code)
    return cls(None, None, message)


# What Python's own exceptions are called when they cross a graph (in a py_func, say).
_CODES = (
    (StopIteration, OUT_OF_RANGE),
    (TypeError, INVALID_ARGUMENT),
    (ValueError, INVALID_ARGUMENT),
    (MemoryError, RESOURCE_EXHAUSTED),
    (NotImplementedError, UNIMPLEMENTED),
)


def to_status(error: BaseException) -> tuple[int, str]:
    """Code and message that stand for an exception: its class, text, and the user's line."""
    if isinstance(error, OpError):
        return error.error_code, error.message
    code = next((code for cls, code in _CODES if isinstance(error, cls)), UNKNOWN)
    text = f"{type(error).__name__}: {error}"
    where = raised_at(error)
    return code, f"{text}\n{where}" if where else text
