"""Where in the user's program something happens: frames of this package and of Python's own
library are not the user's."""

import linecache
import os

# Where the files of this package are.
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(os.__file__) + os.sep  # asking sysconfig would take a millisecond
_SITE = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


def is_library_file(filename: str) -> bool:
    """Whether code of this file belongs to Millrace or to Python itself."""
    if filename.startswith("<frozen"):
        return True
    if filename.startswith(PACKAGE):
        return True
    return filename.startswith(_STANDARD) and not any(part in filename for part in _SITE)


def source_line(filename: str, line: int) -> str:
    """The text of a line, stripped; empty when the source is not there."""
    return linecache.getline(filename, line).strip()


def raised_at(error: BaseException) -> str:
    """'raised at FILE:LINE  code' for the innermost of the user's frames; empty without one."""
    place = None
    traceback = error.__traceback__
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if not is_library_file(filename):
            place = (filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    if place is None:
        return ""
    return f"raised at {place[0]}:{place[1]}  {source_line(*place)}"
