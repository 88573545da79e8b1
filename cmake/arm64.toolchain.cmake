# Builds for 64-bit ARM Linux on another machine, and runs what it builds in QEMU: Debian's
# g++-aarch64-linux-gnu and qemu-user (or qemu-user-static). The libraries lie in the folder
# MILLRACE_ARM64_SYSROOT, which tools/arm64_sysroot.sh fills.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

if(NOT MILLRACE_ARM64_SYSROOT)
  set(MILLRACE_ARM64_SYSROOT $ENV{MILLRACE_ARM64_SYSROOT})
endif()
set(CMAKE_SYSROOT ${MILLRACE_ARM64_SYSROOT})
# What checks compilers is a project of its own.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MILLRACE_ARM64_SYSROOT)
# Programs that the build runs, protoc among them, are this machine's.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()

find_program(MILLRACE_ARM64_EMULATOR NAMES qemu-aarch64 qemu-aarch64-static REQUIRED)
set(CMAKE_CROSSCOMPILING_EMULATOR ${MILLRACE_ARM64_EMULATOR} -L ${CMAKE_SYSROOT})
