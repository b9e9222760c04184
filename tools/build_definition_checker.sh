#!/usr/bin/env bash
# Builds definition-checker (tools/definition_checker): what a new API server thinks of our custom resource definition and of jobs.
#
# The control plane of build_control_plane.sh, Kubernetes 1.20, leaves the rules of a definition out. Debian unstable has the library in
# which newer ones check them (apiextensions-apiserver 0.36), with all that it needs, as source packages. They are unpacked into the
# cache folder and built offline; nothing is installed. About 330 MB of downloads, 2 GB of scratch (removed afterwards).
#
# usage: tools/build_definition_checker.sh [CACHE_FOLDER]      (default: ~/.cache/sporax/control-plane)
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
cache="$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/sporax/control-plane}")"
binary="$cache/bin/definition-checker"
if [ -x "$binary" ] && [ "$binary" -nt "$here/definition_checker/main.go" ]; then
    echo "definition checker: already built in $cache/bin"
    exit 0
fi

mirror="${DEBIAN_MIRROR:-http://deb.debian.org/debian}"
scratch="$cache/checker-scratch"
mkdir -p "$cache/bin" "$scratch"/{packages,root,apt/lists/partial,apt/cache/archives/partial,go/src}
echo "== packages"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keyring] $mirror sid main" >"$scratch/apt/sources.list"
: >"$scratch/apt/status"
cat >"$scratch/apt/apt.conf" <<EOF
Dir::Etc::SourceList "$scratch/apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$scratch/apt/lists";
Dir::State::Status "$scratch/apt/status";
Dir::Cache "$scratch/apt/cache";
APT::Sandbox::User "$(id -un)";
EOF
export APT_CONFIG="$scratch/apt/apt.conf"
apt-get -qq update
# All that the library needs is called golang-…; what these need besides is for building packages.
apt-get -qq --no-install-recommends --print-uris install golang-k8s-apiextensions-apiserver-dev golang-go |
    awk '$2 ~ /^golang-/ {sub("_.*", "", $2); print $2}' >"$scratch/names"
(cd "$scratch/packages" && xargs apt-get -qq download <"$scratch/names")
for package in "$scratch"/packages/*.deb; do dpkg-deb -x "$package" "$scratch/root"; done

echo "== definition-checker"
cp -r "$here/definition_checker" "$scratch/go/src/"
export GOROOT="$(ls -d "$scratch"/root/usr/lib/go-*)" GOPATH="$scratch/go:$scratch/root/usr/share/gocode"
export GOCACHE="$scratch/go-cache" GO111MODULE=off GOTOOLCHAIN=local GOPROXY=off CGO_ENABLED=0
(cd "$scratch/go/src/definition_checker" && "$GOROOT/bin/go" build -o "$binary" .)
chmod -R u+w "$scratch" && rm -rf "$scratch"
echo "definition checker: built in $cache/bin"
