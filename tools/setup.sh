#!/usr/bin/env bash
# setup.sh GROUP...: makes sure that what the groups need is on this Debian or Ubuntu machine.
#
#   build   compiler, linker, ccache, CMake, Ninja, protobuf, zlib, libjpeg, libpng, gRPC, Python with
#           its headers and venv: all that appears in a command of the build, so that a later group
#           rebuilds nothing
#   test    GoogleTest, Google Benchmark, clang with libFuzzer
#   bench   Google Benchmark
#   lint    clang-tidy, git
#   arm64   a compiler for 64-bit ARM, and QEMU to run what it makes
#
# It looks for the tools themselves, so it is quick and silent when all are there, however they
# were installed. What is missing it installs with apt-get, through sudo where you are not root;
# where it cannot, it prints the commands and stops with status 1.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

missing=()
need() {  # need PACKAGE PROBE...: PACKAGE is missing when PROBE fails
  local package=$1
  shift
  "$@" > /dev/null 2>&1 || [[ " ${missing[*]} " = *" $package "* ]] || missing+=("$package")
}
compiler() {
  local cxx
  cxx=$(choose_cxx)
  has "$cxx" || return 1
  "$cxx" --version | grep -q clang || [ "$(gcc_major "$cxx")" -ge 12 ]
}
header() {
  printf '#if !__has_include(<%s>)\n#error missing\n#endif\n' "$1" | "$(choose_cxx)" -E -x c++ -
}
python_headers() {
  python3 -c 'import os, sysconfig as s; assert os.path.exists(s.get_path("include") + "/Python.h")'
}
emulator() { has qemu-aarch64 || has qemu-aarch64-static; }
fuzzer_runtime() {
  local library
  library=$(clang++ -fsanitize=fuzzer -### -x c++ - 2>&1 < /dev/null |
    grep -o '[^" ]*libclang_rt\.fuzzer[^" ]*\.a' | head -n 1)
  [ -e "$library" ]
}

for group in "$@"; do
  case $group in
    build)
      need g++ compiler
      need lld has ld.lld
      need ccache has ccache
      need cmake has cmake
      need ninja-build has ninja
      need protobuf-compiler has protoc
      need libprotobuf-dev header google/protobuf/message.h
      need zlib1g-dev header zlib.h
      need libjpeg-dev header jpeglib.h
      need libpng-dev header png.h
      need libgrpc++-dev header grpcpp/grpcpp.h
      need python3 has python3
      need python3-venv python3 -c 'import ensurepip'
      need python3-dev python_headers
      need ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
      ;;
    test)
      need libgtest-dev header gtest/gtest.h
      need libbenchmark-dev header benchmark/benchmark.h
      need clang has clang++
      need libclang-rt-dev fuzzer_runtime
      ;;
    bench)
      need libbenchmark-dev header benchmark/benchmark.h
      ;;
    lint)
      need clang has clang++
      need clang-tidy has clang-tidy
      need git has git
      ;;
    arm64)
      need g++-aarch64-linux-gnu has aarch64-linux-gnu-g++
      need qemu-user emulator
      ;;
    *)
      echo "setup.sh: unknown group '$group'; expected build, test, bench, lint or arm64" >&2
      exit 2
      ;;
  esac
done
[ ${#missing[@]} -gt 0 ] || exit 0

# The names of the missing packages on this release of Debian or Ubuntu.
packages() {
  local package major
  for package in "${missing[@]}"; do
    case $package in
      g++)
        major=$(apt-cache show g++ 2> /dev/null |
          sed -n 's/^Version: \([0-9]*:\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1)
        [ "${major:-12}" -ge 12 ] || package='g++ g++-12'
        ;;
      libclang-rt-dev)  # part of another package before Debian 12 and Ubuntu 23.04
        major=$(apt-cache depends clang 2> /dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p')
        apt-cache show "$package" > /dev/null 2>&1 || [ -z "$major" ] ||
          package=libclang-common-$major-dev
        ;;
    esac
    echo "$package"
  done | sort -u | tr '\n' ' '
}

stop() {
  printf '%s\n' "$@" >&2
  exit 1
}

has apt-get || stop "Missing, by their Debian names: ${missing[*]}" \
  "Please install them and try again."

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo)
  if ! has sudo || { [ ! -t 0 ] && ! sudo -n true 2> /dev/null; }; then
    stop "Missing: ${missing[*]}" "Please run, as root:" "  apt-get update" \
      "  apt-get install -y --no-install-recommends $(packages)"
  fi
fi

apt_get() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q "$@"; }
echo "== installing: ${missing[*]}"
apt_get update || stop "apt-get update failed, see above; missing: ${missing[*]}"
read -ra names <<< "$(packages)"
apt_get install -y --no-install-recommends "${names[@]}" || stop \
  "apt-get could not install them, see above. The command was, as root:" \
  "  apt-get install -y --no-install-recommends ${names[*]}"
