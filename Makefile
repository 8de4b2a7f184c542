# The doors of this project. Only make and Python 3.11 are needed; all else goes into .venv.
#
#   make demo     see it work
#   make check    format, lint, types, import layers, known vulnerabilities
#   make test     the whole suite on every server that can be had; ARGS="..." goes to pytest
#   make chaos    try to break the promises; ARGS="--minutes 10 --seed 7", `--help` lists more
#   make soak     an hour at a steady rate with reconnects: does anything grow? ARGS="--minutes 5"
#   make fuzz     the model and the fuzzers, at random and for long
#   make bench    ours beside the reference, as ratios; ARGS="--quick", "--peers all", `--help` lists more
#   make bench-spark  Spark beside the raw client, as ratios; ARGS="--large", "--only read", "--json"

.PHONY: help venv demo servers test chaos soak fuzz bench bench-spark check fmt clean

help:
	@sed -n 's/^#   //p' Makefile

venv:
	@scripts/venv

demo: venv
	@.venv/bin/python examples/demo.py

servers: venv
	@.venv/bin/python scripts/servers.py get
	@.venv/bin/python scripts/servers.py reference >/dev/null || true
	@.venv/bin/python -m tests.support.spark_classes >/dev/null || true

test: servers
	@scripts/test $(ARGS)

chaos: servers
	@.venv/bin/python -m chaos $(ARGS)

soak: servers
	@.venv/bin/python -m chaos.soak $(ARGS)

fuzz: servers
	@CHASQUI_FUZZ=long scripts/test --timeout=7200 tests/model tests/fuzz $(ARGS)

bench: venv
	@.venv/bin/python -m bench $(ARGS)

bench-spark: venv
	@.venv/bin/python -m bench.spark $(ARGS)

check: venv
	@scripts/check

fmt: venv
	@.venv/bin/ruff check --quiet --fix-only .
	@.venv/bin/ruff format --quiet .

clean:
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find bench chaos src tests examples scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
