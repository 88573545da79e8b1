"""Where in the user's program something happens: frames of this package and of Python's own
library are not the user's."""

import linecache
import os
import sysconfig
import traceback
from types import CodeType

# Where the files of this package are.
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = tuple({sysconfig.get_path(key) + os.sep for key in ("stdlib", "platstdlib")})
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
    for frame, line in traceback.walk_tb(error.__traceback__):
        code: CodeType = frame.f_code
        if not is_library_file(code.co_filename):
            place = (code.co_filename, line)
    if place is None:
        return ""
    return f"raised at {place[0]}:{place[1]}  {source_line(*place)}"
