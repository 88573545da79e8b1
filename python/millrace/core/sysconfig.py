"""Where the package is, for those who build against it."""

import os

from millrace.core.export import export


def _folder() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@export(v1="sysconfig.get_include", v2="sysconfig.get_include")
def get_include() -> str:
    """The folder of the C++ headers."""
    return os.path.join(_folder(), "include")


@export(v1="sysconfig.get_lib", v2="sysconfig.get_lib")
def get_lib() -> str:
    """The folder of the shared library."""
    return _folder()


@export(v1="sysconfig.get_compile_flags", v2="sysconfig.get_compile_flags")
def get_compile_flags() -> list[str]:
    """Flags to compile op libraries with."""
    return [f"-I{get_include()}", "-std=c++20"]


@export(v1="sysconfig.get_link_flags", v2="sysconfig.get_link_flags")
def get_link_flags() -> list[str]:
    """Flags to link op libraries with."""
    return [f"-L{get_lib()}", "-lmillrace"]


@export(v1="sysconfig.get_build_info", v2="sysconfig.get_build_info")
def get_build_info() -> dict[str, object]:
    """What the package was built with."""
    return {"is_cuda_build": False, "is_rocm_build": False, "is_tensorrt_build": False}
