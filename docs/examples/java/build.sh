#!/bin/sh
# Builds the classes in build/ from the .proto files in HRAG_PROTOS, with these packages of Debian:
# default-jdk-headless libgrpc-java libprotobuf-java libnetty-java libperfmark-java
# libgoogle-gson-java protobuf-compiler protobuf-compiler-grpc-java-plugin
set -eu
cd "$(dirname "$0")"
out=${1:-build}
mkdir -p "$out/src" "$out/classes"
protoc -I "$HRAG_PROTOS" --java_out="$out/src" --grpc-java_out="$out/src" \
  --plugin=protoc-gen-grpc-java="$(command -v grpc_java_plugin)" "$HRAG_PROTOS"/hrag/v1/*.proto
find "$out/src" -name '*.java' > "$out/sources"
javac -nowarn -cp '/usr/share/java/*' -d "$out/classes" @"$out/sources" Search.java
