"""What tests must know of a package that was built with a sanitizer."""

import os

import pytest

# For tests that start programs of others: a sanitizer's runtime would be loaded into those, too.
starts_other_programs = pytest.mark.skipif(
    "MILLRACE_SANITIZE" in os.environ, reason="the sanitizer would watch other programs, too"
)
# For tests that measure memory: sanitizers keep what is freed.
measures_memory = pytest.mark.skipif(
    "MILLRACE_SANITIZE" in os.environ, reason="the sanitizer keeps what is freed"
)
# For tests of how long other processes are waited for: sanitizers slow them by a lot.
measures_time = pytest.mark.skipif(
    "MILLRACE_SANITIZE" in os.environ, reason="the sanitizer takes the time of its own"
)
