"""Another name of millrace.compat.v1."""

import sys

from millrace.compat import v1

sys.modules[__name__] = v1
