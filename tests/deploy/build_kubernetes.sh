#!/usr/bin/env bash
# Builds kube-apiserver and kube-controller-manager from Debian's source package into DIR/kubernetes, where
# kubernetes_node.py takes them from: four minutes on two idle cores, twelve beside other work.
#
#     apt-get install golang-go golang-github-modern-go-reflect2-dev rsync dpkg-dev
#     build_kubernetes.sh DIR
set -euo pipefail

out=$(realpath "${1:?a directory is needed}")/kubernetes
scratch=$(mktemp -d -p "$(dirname "$out")")
trap 'chmod -R u+w "$scratch" && rm -rf "$scratch"' EXIT
mkdir -p "$out" "$scratch/lists/partial" "$scratch/cache"
cd "$scratch"

# A list of its own: the computer's need not name source packages.
printf 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s main\n' \
  'http://deb.debian.org/debian bookworm' 'http://deb.debian.org/debian-security bookworm-security' >sources.list
apt=(-qq -o "Dir::Etc::SourceList=$scratch/sources.list" -o Dir::Etc::SourceParts=/nonexistent
  -o "Dir::State::Lists=$scratch/lists" -o "Dir::Cache=$scratch/cache" -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update
apt-get "${apt[@]}" source kubernetes

source=$(echo "$scratch"/kubernetes-*/)
vendor=$source/vendor/github.com/modern-go
rm -rf "$vendor/reflect2"   # crashes when built by Go 1.18 or later
cp -r /usr/share/gocode/src/github.com/modern-go/reflect2 "$vendor/"
export GOPATH=$scratch/go GOCACHE=$scratch/gocache HOME=$scratch GO111MODULE=off CGO_ENABLED=0
mkdir -p "$GOPATH/src/k8s.io"
ln -s "$source" "$GOPATH/src/k8s.io/kubernetes"
cd "$GOPATH/src/k8s.io/kubernetes"
make WHAT="cmd/kube-apiserver cmd/kube-controller-manager" GOGCFLAGS="" KUBE_GIT_COMMIT=none \
  KUBE_GIT_TREE_STATE=clean KUBE_GIT_VERSION=v1.20.2 KUBE_GIT_MAJOR=1 KUBE_GIT_MINOR=20
cp _output/bin/kube-apiserver _output/bin/kube-controller-manager "$out/"
