#!/usr/bin/env bash
# A closed loop of searches: each caller waits for its reply. Measures a retriever's maximum
# throughput. Needs nghttp2-client (Debian) and a store made by `python -m benchmarks.load fill`.
#
#   benchmarks/load/h2load.sh [ADDRESS] [h2load's own options...]
set -euo pipefail
cd "$(dirname "$0")/../.."
address=${1:-127.0.0.1:50052}
body=$(mktemp)
trap 'rm -f "$body"' EXIT
"${PYTHON:-.venv/bin/python}" -m benchmarks.load body "$body"
h2load --clients=4 --max-concurrent-streams=8 --duration=20 --warm-up-time=2 \
    --data="$body" \
    --header='content-type: application/grpc' --header='te: trailers' \
    --header='grpc-timeout: 5S' \
    "${@:2}" "http://$address/hrag.v1.RetrieverService/Search"
