# One image, three commands: `hrag serve` (both services, the default), `python -m indexer_svc`
# and `python -m retriever_svc`. Runs as an unprivileged user and writes only to /data, so the
# root file system may be read-only. Every call needs an API key. The key file in /keys is
# empty at first, so every call is refused until `hrag keys create`. A new volume is initialised
# with the image's folder at its mount point, with owner and mode.

FROM debian:bookworm-slim AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates g++ libpython3-dev python3-venv
# pip stays outside of the copied environment. HNSWLIB_NO_NATIVE: otherwise hnswlib is compiled
# for this machine's CPU and crashes on others.
RUN python3 -m venv /pip && python3 -m venv --without-pip /opt/hrag
ENV HNSWLIB_NO_NATIVE=1 PIP_CONSTRAINT=/source/constraints.txt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
# Dependencies change less often than the source: a layer of their own.
COPY pyproject.toml constraints.txt ./
RUN python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' > /requirements.txt \
    && /pip/bin/pip --python /opt/hrag/bin/python install --requirement /requirements.txt
COPY . .
RUN /pip/bin/pip --python /opt/hrag/bin/python install .

FROM debian:bookworm-slim
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
