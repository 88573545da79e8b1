"""Versions: of this package in TensorFlow's terms, and of its graph format."""

from millrace import _core
from millrace.core.export import export

GIT_VERSION = export(v1="version.GIT_VERSION", v2="version.GIT_VERSION")("unknown")
COMPILER_VERSION = export(v1="version.COMPILER_VERSION", v2="version.COMPILER_VERSION")("unknown")
VERSION = export(v1="version.VERSION", v2="version.VERSION")("1.15.0")

GRAPH_DEF_VERSION = export(
    v1=("GRAPH_DEF_VERSION", "version.GRAPH_DEF_VERSION"), v2="version.GRAPH_DEF_VERSION"
)(_core.GraphBase()._producer)
GRAPH_DEF_VERSION_MIN_CONSUMER = export(
    v1=("GRAPH_DEF_VERSION_MIN_CONSUMER", "version.GRAPH_DEF_VERSION_MIN_CONSUMER"),
    v2="version.GRAPH_DEF_VERSION_MIN_CONSUMER",
)(0)
GRAPH_DEF_VERSION_MIN_PRODUCER = export(
    v1=("GRAPH_DEF_VERSION_MIN_PRODUCER", "version.GRAPH_DEF_VERSION_MIN_PRODUCER"),
    v2="version.GRAPH_DEF_VERSION_MIN_PRODUCER",
)(0)
CXX11_ABI_FLAG = export(
    v1=("CXX11_ABI_FLAG", "sysconfig.CXX11_ABI_FLAG"), v2="sysconfig.CXX11_ABI_FLAG"
)(1)
MONOLITHIC_BUILD = export(
    v1=("MONOLITHIC_BUILD", "sysconfig.MONOLITHIC_BUILD"), v2="sysconfig.MONOLITHIC_BUILD"
)(0)
