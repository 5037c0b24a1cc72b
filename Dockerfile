# One image with three commands: `hrag serve` (both services, the default), `python -m indexer_svc`
# and `python -m retriever_svc`. It runs as an unprivileged user and writes only to /data, so the
# root file system may be read-only. Every call needs an API key. The key file in /keys is
# empty at first, so every call is refused until `hrag keys create`. Docker initialises a new volume
# with the image's folder at its mount point, including owner and mode.

# The base is Debian 13, pinned by the digest of all its architectures; `make images` prints the
# current digest. A new digest brings Debian's security updates. The packages below are the newest at
# each build.
ARG BASE=debian:trixie-slim@sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f

FROM ${BASE} AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates g++ libpython3-dev python3-venv
# /build is for compiling: pip and compilers are not in the environment that is copied. Without
# HNSWLIB_NO_NATIVE, hnswlib would be compiled for the CPU of this machine and crash on others. With
# HRAG_REQUIRE_EXTENSIONS, a kernel that cannot be compiled ends the build.
RUN python3 -m venv /build && python3 -m venv --without-pip /opt/hrag
ENV HNSWLIB_NO_NATIVE=1 HRAG_REQUIRE_EXTENSIONS=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
# Dependencies change less often than the source, so they have a separate layer. Every package from
# a registry is checked against its hash, including compilers. Nothing is resolved: the lists are
# complete. Only hnswlib is compiled, because it has no wheels.
COPY constraints/build.txt constraints/runtime.txt constraints/
RUN /build/bin/pip install --no-deps --require-hashes --only-binary :all: --requirement constraints/build.txt \
    && /build/bin/pip wheel --no-deps --require-hashes --only-binary :all: --no-binary hnswlib \
        --no-build-isolation --wheel-dir /wheels --requirement constraints/runtime.txt \
    && /build/bin/pip --python /opt/hrag/bin/python install --no-index --no-deps /wheels/*.whl
COPY . .
RUN /build/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /own . \
    && /build/bin/pip --python /opt/hrag/bin/python install --no-index --no-deps /own/*.whl

FROM ${BASE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
    && useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin hrag \
    && install --directory --owner hrag --group hrag --mode 700 /data /keys \
    && echo '{"keys": []}' > /keys/keys.json \
    && chown hrag:hrag /keys/keys.json \
    && chmod 600 /keys/keys.json
COPY --from=build /opt/hrag /opt/hrag
ENV PATH=/opt/hrag/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HRAG_DATA_DIR=/data \
    HRAG_INDEXER_ADDRESS=0.0.0.0:50051 \
    HRAG_RETRIEVER_ADDRESS=0.0.0.0:50052 \
    HRAG_AUTH=api_key \
    HRAG_API_KEYS_FILE=/keys/keys.json \
    HRAG_LOG_FORMAT=json
USER 10001:10001
WORKDIR /data
EXPOSE 50051 50052
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["hrag", "health"]
CMD ["hrag", "serve"]
