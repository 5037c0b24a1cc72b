#!/bin/sh
# Builds build/search from the .proto files in HRAG_PROTOS, with these packages of Debian:
# golang-go golang-google-grpc-dev golang-google-protobuf-dev protoc-gen-go protoc-gen-go-grpc
# protobuf-compiler
set -eu
cd "$(dirname "$0")"
out=${1:-build}
mkdir -p "$out/src"
protoc -I "$HRAG_PROTOS" --go_out="$out/src" --go-grpc_out="$out/src" "$HRAG_PROTOS"/hrag/v1/*.proto
GO111MODULE=off GOPATH="$(realpath "$out"):/usr/share/gocode" go build -o "$out/search" main.go
