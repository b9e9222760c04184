#!/usr/bin/env bash
# Builds etcd, kube-apiserver, kube-controller-manager and kubectl into a cache folder, for the tests that need a real
# Kubernetes control plane (`make test-cluster`).
#
# No package registry offers a kube-apiserver binary, but Debian bookworm's source package `kubernetes` (1.20.2) is the
# complete upstream tree with its vendored dependencies. It builds offline with Debian's Go 1.19 after two repairs:
# - the vendored reflect2 1.0.1 corrupts memory on Go 1.18 and later (the server dies about a second after the first custom
#   resource definition), so Debian's 1.0.2 takes its place;
# - the check of custom resources takes "" for null on Go 1.16 and later (kubernetes/kubernetes#99804), so its test for zero
#   values goes, as upstream removed it (kubernetes/kube-openapi#230).
#
# Packages are unpacked into the cache folder, never installed; root is not needed. Takes about 10 minutes of one
# processor, 2.6 GB of scratch (removed afterwards), 0.7 GB of memory at the peak.
#
# usage: tools/build_control_plane.sh [CACHE_FOLDER]      (default: ~/.cache/sporax/control-plane)
# The binaries are then in CACHE_FOLDER/bin; tests look there or in the folder that SPORAX_KUBE_ASSETS or
# KUBEBUILDER_ASSETS names. GOFLAGS=-p=1 keeps the build to one processor.
set -euo pipefail

cache="$(realpath -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/sporax/control-plane}")"
binaries="$cache/bin"
if [ -x "$binaries/kube-apiserver" ] && [ -x "$binaries/kube-controller-manager" ] &&
    [ -x "$binaries/etcd" ] && [ -x "$binaries/kubectl" ]; then
    echo "control plane: already built in $binaries"
    exit 0
fi

mirror="${DEBIAN_MIRROR:-http://deb.debian.org/debian}"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
scratch="$cache/scratch"
mkdir -p "$binaries" "$scratch"/{packages,root,apt/lists/partial,apt/cache/archives/partial,tree}

echo "== packages"
# apt with a state of its own: this machine's sources and packages stay as they are
echo "deb [signed-by=$keyring] $mirror bookworm main" >"$scratch/apt/sources.list"
echo "deb-src [signed-by=$keyring] $mirror bookworm main" >>"$scratch/apt/sources.list"
cat >"$scratch/apt/apt.conf" <<EOF
Dir::Etc::SourceList "$scratch/apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$scratch/apt/lists";
Dir::Cache "$scratch/apt/cache";
APT::Sandbox::User "$(id -un)";
EOF
export APT_CONFIG="$scratch/apt/apt.conf"
apt-get -qq update
(cd "$scratch/packages" && apt-get -qq download golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev \
    etcd-server kubernetes-client rsync libpopt0 jq libjq1 libonig5)
for package in "$scratch"/packages/*.deb; do dpkg-deb -x "$package" "$scratch/root"; done
(cd "$scratch/packages" && apt-get -qq source --download-only kubernetes)

echo "== sources"
kubernetes="$scratch/tree/src/k8s.io/kubernetes"
rm -rf "$kubernetes" && mkdir -p "$kubernetes"
tar -xzf "$scratch"/packages/kubernetes_*.orig.tar.gz -C "$kubernetes" --strip-components=1
rm -rf "$kubernetes/vendor/github.com/modern-go/reflect2"
cp -r "$scratch/root/usr/share/gocode/src/github.com/modern-go/reflect2" "$kubernetes/vendor/github.com/modern-go/"
for copy in k8s.io/kube-openapi/pkg/validation github.com/go-openapi; do
    file="$kubernetes/vendor/$copy/validate/type.go"
    sed -i 's/if data == nil || reflect\.DeepEqual(reflect\.Zero(reflect\.TypeOf(data)), reflect\.ValueOf(data)) {/if data == nil {/' "$file"
    grep -q 'if data == nil {' "$file"
done

echo "== kube-apiserver, kube-controller-manager"
export GOPATH="$scratch/tree" GOROOT="$scratch/root/usr/lib/go-1.19" GOCACHE="$scratch/go-cache" HOME="$scratch"
export PATH="$GOROOT/bin:$scratch/root/usr/bin:$PATH" LD_LIBRARY_PATH="$scratch/root/usr/lib/x86_64-linux-gnu"
export CGO_ENABLED=0 GO111MODULE=off GOPROXY=off GOFLAGS="${GOFLAGS:-}"
# Go says nothing for minutes: say how much of its cache is there. The number is that of a whole build.
say_progress() {
    while sleep 20; do
        echo "   $(find "$kubernetes/_output/local/go/cache" -name '*-d' 2>/dev/null | wc -l) of about 3000 files compiled"
    done
}
say_progress &
progress=$!
trap 'kill "$progress" 2>/dev/null || true' EXIT
make -C "$kubernetes" WHAT="cmd/kube-apiserver cmd/kube-controller-manager"
kill "$progress"

install -m 755 "$kubernetes"/_output/bin/kube-{apiserver,controller-manager} "$scratch"/root/usr/bin/{etcd,kubectl} "$binaries"
chmod -R u+w "$scratch" && rm -rf "$scratch"
echo "control plane: built in $binaries"
