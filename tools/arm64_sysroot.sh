#!/usr/bin/env bash
# arm64_sysroot.sh: fills build/arm64_sysroot with Debian's libraries for 64-bit ARM, which the preset
# `arm64` builds with. They are taken from the archives that apt knows and unpacked there: this machine's
# own packages are left alone, and root is not needed. Does nothing when they are there.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(libc6-dev libstdc++-12-dev libprotobuf-dev zlib1g-dev libjpeg-dev libpng-dev libgtest-dev)
root=$PWD/build/arm64_sysroot
[ ! -e "$root/complete" ] || exit 0

# Lists and packages of that architecture, beside this machine's.
state=$PWD/build/arm64_apt
mkdir -p "$root" "$state"/{lists,archives}/partial
: > "$state/status"
apt_get() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Debug::NoLocking=1 \
    -o APT::Sandbox::User="$(id -un)" -o Dir::State="$state" -o Dir::State::lists="$state/lists" \
    -o Dir::State::status="$state/status" -o Dir::Cache="$state" -o Dir::Cache::archives="$state/archives" "$@"
}
echo "== arm64: fetching ${packages[*]}"
apt_get update
apt_get install --yes --download-only --no-install-recommends "${packages[@]}"
for package in "$state"/archives/*.deb; do
  dpkg-deb --extract "$package" "$root"
done
rm -r "$state"
# Links to places of the whole system, which here begins at the sysroot.
find "$root" -type l -lname '/*' | while IFS= read -r link; do
  ln -sfn "$root$(readlink "$link")" "$link"
done
touch "$root/complete"
