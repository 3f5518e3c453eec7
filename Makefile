# One line a target; anything longer is a script. Variables given to make reach it: INPUT KEEP SEEDS SEED STORY WATCHED SEARCH ONLY SERVICE VOLUMES BROKERS ON TIMES COLUMN.
.DEFAULT_GOAL := help
PY := .venv/bin/python
SEEDS ?= 50
ON ?= local
TIMES ?= 1
COLUMN ?= all/2

.PHONY: help setup demo quick test test-integration test-spark test-compose gate check model sim chaos mutants bench proto generate lock clean up down grow shrink logs ps images

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

setup: ## .venv with the locked packages; quick when nothing changed
	@scripts/setup.sh

demo: setup ## kill a leader under load, read everything back with Spark, compare (INPUT=file, KEEP=1)
	@$(PY) scripts/demo.py

quick: setup ## format, lint, types and unit tests without processes, in two minutes
	@$(PY) scripts/run_tests.py quick

test: setup ## quick, small models, seeds, and a smoke set on real processes, in Spark and in containers
	@$(PY) scripts/run_tests.py test

test-integration: setup ## all tests on real processes, and that every benchmark runs
	@$(PY) scripts/run_tests.py integration

test-spark: setup ## all tests with Spark
	@$(PY) scripts/run_tests.py spark

test-compose: setup ## all tests in containers
	@$(PY) scripts/run_tests.py compose

gate: setup ## everything, with 200 seeds, mutants and the whole model; goes on where it was interrupted
	@$(PY) scripts/run_tests.py gate

check: setup ## format, lint, types, import table, language, generated files, table of requirements
	@scripts/check.sh

model: setup ## search the abstract protocol breadth first, and find its mutants (ONLY=MUT-4,3.6)
	@$(PY) -m tidelog.model $(if $(ONLY),--only $(ONLY))

sim: setup ## seeded cluster simulation (SEEDS=50, SEED=first, WATCHED=1: twice; with STORY=file one SEED, as a story of the lab)
	@$(PY) $(if $(STORY),scripts/seed_story.py --story '$(STORY)' --seed '$(SEED)',-m tidelog.testing.sim --seeds $(SEEDS) $(if $(SEED),--first $(SEED)) $(if $(WATCHED),--watched))

chaos: setup ## twelve rows of the fault matrix, TIMES runs of each, and one table (ON=compose, TIMES=10, COLUMN=all/1)
	@$(PY) -m tidelog.cli.main chaos campaign --times $(TIMES) --on $(ON) --column $(COLUMN)

lessons: setup ## play every lesson of the lab, and write the digests of their events anew
	@$(PY) scripts/lessons.py

mutants: setup ## planted mistakes: each must be noticed (SEARCH=1 forgets the kept seeds, ONLY=MUT-4)
	@PYTHONPATH=scripts $(PY) -m mutants $(if $(SEARCH),--search) $(if $(ONLY),--only $(ONLY))

bench: setup ## one line a figure (ONLY=B2,B5)
	@PYTHONPATH=scripts $(PY) -m bench $(if $(ONLY),--only $(ONLY))

proto: setup ## regenerate tidelog.wire from proto/
	@$(PY) scripts/gen_proto.py

generate: setup ## regenerate boards, alerts, recorded queries, and the pages of docs/ that are made from code
	@$(PY) scripts/generate.py

lock: setup ## write the lock files anew from pyproject.toml
	@scripts/lock.sh

clean: ## remove runs, builds and caches, but nothing that is in use, no cluster and not .venv
	@scripts/clean.sh

up: ## the cluster as containers, built and healthy (Grafana where it can be pulled; COMPOSE_PROFILES=spark)
	@scripts/up.sh

down: ## stop and remove the containers (VOLUMES=1 with their data)
	@scripts/down.sh $(if $(VOLUMES),--volumes)

grow: ## brokers 4 and 5 join the containers, get their share of everything and are watched (BROKERS=4)
	@scripts/resize.sh grow $(BROKERS)

shrink: ## everything moves off them again, and they are removed (BROKERS=4)
	@scripts/resize.sh shrink $(BROKERS)

logs: ## what the containers wrote (SERVICE=broker-1)
	@docker compose --profile ui --profile spark --profile grow logs --tail 200 $(SERVICE)

ps: ## the containers and their health
	@docker compose --profile ui --profile spark --profile grow ps --all

images: ## build the images (COMPOSE_PROFILES=spark with that of Spark)
	@scripts/images.sh
