# Compiler, flags, linker and ccache: everything that must be the same for every target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# One compilation serves both the folder's static library and libmillrace.so.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "Millrace needs GCC 12 or newer, or clang 14 or newer; found GCC "
                      "${CMAKE_CXX_COMPILER_VERSION}. Choose another one with CXX=g++-12.")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  message(FATAL_ERROR "Millrace needs clang 14 or newer, or GCC 12 or newer; found clang "
                      "${CMAKE_CXX_COMPILER_VERSION}.")
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# -ffast-math is never used: it changes what NaN and infinity mean. Contraction is off so that a
# result does not depend on which of two equal expressions the compiler fused.
# Nobody may replace a function of libmillrace, so calls inside it need no indirection; and whoever
# calls an inline function compiles it, so libmillrace does not offer it.
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off
                    -fno-semantic-interposition -fvisibility-inlines-hidden)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A file takes a few hundred MB at most: collecting garbage in between is time lost.
  add_compile_options(--param=ggc-min-heapsize=524288)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    # Nothing here was compiled by a GCC before 10, which passed some classes otherwise.
    add_compile_options(-Wno-psabi)
  endif()
else()
  # Clang's precompiled headers hold absolute paths, so with them ccache would find nothing that was
  # compiled in another folder.
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
  # To read or call something without the lock that its declaration asks for is an error
  # (millrace/base/thread_annotations.h).
  add_compile_options(-Wthread-safety -Werror=thread-safety)
endif()
if(MILLRACE_WERROR)
  add_compile_options(-Werror)
endif()
if(MILLRACE_SANITIZE)
  add_compile_options(-fsanitize=${MILLRACE_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${MILLRACE_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND MILLRACE_SANITIZE MATCHES "undefined")
    # As GCC, which does not count it among what is undefined: a number that does not fit an integer
    # becomes what the processor makes of it.
    add_compile_options(-fno-sanitize=float-cast-overflow)
  endif()
  if(MILLRACE_SANITIZE STREQUAL "thread")
    # GCC's macro changes the layout of protobuf's map fields, which then no longer fits the system's
    # libprotobuf. Our own code asks for MILLRACE_THREAD_SANITIZER.
    add_compile_options(-U__SANITIZE_THREAD__)
    add_compile_definitions(MILLRACE_THREAD_SANITIZER)
  elseif(MILLRACE_SANITIZE MATCHES "address")
    # GCC and clang have no macro for it in common.
    add_compile_definitions(MILLRACE_ADDRESS_SANITIZER)
  endif()
endif()
if(MILLRACE_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "MILLRACE_FUZZERS needs clang; use the preset `asan`")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()

# The instruction sets, besides the baseline, that sources named x_isa.cc are compiled for: name,
# enumerator of Isa (millrace/base/isa.h) and flags. Which copy is called is decided at run time, in
# millrace/ops/isa_table.h. On 64-bit ARM the baseline has NEON.
set(MILLRACE_ISAS "")
macro(millrace_isa name enumerator)
  list(APPEND MILLRACE_ISAS ${name})
  set(MILLRACE_ISA_${name} ${enumerator})
  set(MILLRACE_ISA_${name}_FLAGS ${ARGN})
endmacro()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  millrace_isa(avx2 kAvx2 -mavx2 -mfma -mf16c)
  millrace_isa(avx512 kAvx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)
endif()

include(CheckCXXSourceCompiles)
foreach(linker mold lld)
  set(CMAKE_REQUIRED_LINK_OPTIONS -fuse-ld=${linker})
  check_cxx_source_compiles("int main() { return 0; }" MILLRACE_LINKER_${linker})
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
  if(MILLRACE_LINKER_${linker})
    set(MILLRACE_LINKER ${linker})
    add_link_options(-fuse-ld=${linker})
    break()
  endif()
  # It may be installed later.
  unset(MILLRACE_LINKER_${linker} CACHE)
endforeach()
if(NOT MILLRACE_LINKER AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # The distribution's static libraries also hold the bytecode of its default compiler, which another
  # one cannot read; without the plugin the linker takes their machine code.
  add_link_options(-fno-use-linker-plugin)
endif()

# Paths are hashed relative to the source tree, so build folders share what was compiled. The
# sloppiness is what ccache needs to cache users of a precompiled header. In its depend mode it compares
# headers as they are: by what is left of them without comments it would find a precompiled header
# whose headers GCC, which compares whole files, does not know again.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros
      CCACHE_DEPEND=1
      ${CCACHE_PROGRAM})
endif()
