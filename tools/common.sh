# shellcheck shell=bash
# Sourced by the other scripts.

has() { command -v "$1" > /dev/null; }

gcc_major() { "$1" -dumpversion 2> /dev/null | cut -d. -f1; }

# The compiler to use: $CXX, else the default one, unless that is an old GCC with a newer beside it.
choose_cxx() {
  if [ -n "${CXX:-}" ]; then
    echo "$CXX"
  elif has g++-12 && { ! has g++ || [ "$(gcc_major g++)" -lt 12 ]; }; then
    echo g++-12
  else
    echo c++
  fi
}

# sources PATTERN...: the files of the repository (tracked, or new and not ignored) that match.
# To be called in the repository's root.
sources() {
  git ls-files --cached --others --exclude-standard -- "$@" | sort -u |
    while IFS= read -r file; do
      if [ -e "$file" ]; then echo "$file"; fi
    done
}

cxx_sources() { sources '*.cc' '*.h' '*.cu' '*.cuh'; }

# test_launcher PRESET: what to put before a test's command. The thread sanitizer of older compilers
# cannot start where the kernel randomises addresses widely.
test_launcher() {
  if [ "$1" = tsan ] && setarch "$(uname -m)" -R true 2> /dev/null; then
    echo "setarch $(uname -m) -R"
  else
    echo env
  fi
}
