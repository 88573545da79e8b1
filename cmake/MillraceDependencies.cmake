# What Millrace is built with. Protobuf is required; the rest is found, reported, and left out when
# absent.

find_package(Threads REQUIRED)
find_package(Protobuf CONFIG QUIET)
if(NOT Protobuf_FOUND)
  find_package(Protobuf REQUIRED)
endif()

if(MILLRACE_TESTS)
  find_package(GTest QUIET)
endif()
if(MILLRACE_BENCHMARKS)
  find_package(benchmark QUIET)
endif()

if(MILLRACE_WITH_CUDA)
  find_package(CUDAToolkit REQUIRED)
endif()
