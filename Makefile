# Two commands: `make run` opens the panel on the demo model, `make test` runs every test.
# Both first make .venv, which takes minutes once and seconds after that.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
SOURCES := $(wildcard csrc/*.cpp csrc/*.h csrc/*/*.cpp csrc/*/*.h) csrc/CMakeLists.txt CMakeLists.txt

.PHONY: run test sanitize venv check format bench screens clean

run: venv
	@$(VENV)/bin/kt-tui demo

test: venv
	@$(PY) -m pytest -n 2 --dist worksteal

sanitize:
	@tools/sanitize.sh

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt tools/setup.sh $(SOURCES)
	@PYTHON="$(PYTHON)" bash tools/setup.sh "$(VENV)"
	@touch $@

check: venv
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/clang-format --dry-run --Werror $(filter %.cpp %.h,$(SOURCES))

format: venv
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .
	@$(VENV)/bin/clang-format -i $(filter %.cpp %.h,$(SOURCES))

bench: venv
	@$(PY) -m bench

screens: venv
	@$(PY) tools/screens.py

clean:
	@rm -rf $(VENV) build
