# The doors of this project. Only make and Python 3.11 are needed; all else goes into .venv.
#
#   make demo     see it work
#   make check    format, lint, types, import layers
#   make test     the whole suite on every server that can be had; ARGS="..." goes to pytest
#   make bench-spark  Spark beside the raw client, as ratios; ARGS="--large", "--only read", "--json"

.PHONY: help venv demo servers test check fmt clean bench-spark

help:
	@sed -n 's/^#   //p' Makefile

venv:
	@scripts/venv

demo: venv
	@.venv/bin/python examples/demo.py

servers: venv
	@.venv/bin/python scripts/servers.py get
	@.venv/bin/python scripts/servers.py reference >/dev/null || true

test: servers
	@scripts/test $(ARGS)

bench-spark: venv
	@.venv/bin/python -m bench.spark $(ARGS)

check: venv
	@scripts/check

fmt: venv
	@.venv/bin/ruff check --quiet --fix-only .
	@.venv/bin/ruff format --quiet .

clean:
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests bench examples scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
