# make alone lists the targets. Settings come from the environment and from .env
# (see .env.example); only targets that start the product read .env, so that tests
# and checks give the same answer with it and without.

VERSION  ?= 0.2.0
ENV_FILE ?= .env
MODULE   := github.com/reliable-job-engine/reliable-job-engine
BUILDINFO := $(MODULE)/cmd/internal/buildinfo
COMMIT    = $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
BUILT_AT  = $(shell date -u $${SOURCE_DATE_EPOCH:+-d @$$SOURCE_DATE_EPOCH} +%Y-%m-%dT%H:%M:%SZ)
LDFLAGS   = -s -w -X $(BUILDINFO).version=$(VERSION) -X $(BUILDINFO).commit=$(COMMIT) -X $(BUILDINFO).builtAt=$(BUILT_AT)

GO       ?= go
WITH_ENV := tools/withenv '$(ENV_FILE)' deploy/withdb
# The tools are pinned in a module of their own, which keeps a product team's module graph small.
TOOL     := $(GO) tool -modfile=tools/go.mod

# Where deploy/withdb looks for the address of the Postgres in a container.
POSTGRES_ENV_FILE = deploy/secrets/postgres.env
POSTGRES_ENV = at=$$(docker compose port postgres 5432) && umask 077 && \
	echo "DATABASE_URL=postgres://postgres:$$(cat deploy/secrets/db_password)@$$at/reliable_job_engine?sslmode=disable" >$(POSTGRES_ENV_FILE)

# Packages with goroutines of their own or with handlers called by many.
RACY      = $(addprefix ./,$(addsuffix /...,$(wildcard engine web db cmd)))
GENERATED = engine/internal/dbsqlc ':(glob)**/*_templ.go'
GO_FILES  = find . \( -name .git -o -name .data -o -name bin \) -prune -o -name '*.go' -print
TEMPL_FILES = $(wildcard views/*.templ web/*/*.templ)

# Packages whose tests open a database: those that import one of the two packages that start it, and these two.
INTEGRATION_PACKAGES = $(GO) list -f '{{$$p := .ImportPath}}{{$$p}} {{$$p}}{{"\n"}}{{range .TestImports}}{{$$p}} {{.}}{{"\n"}}{{end}}{{range .XTestImports}}{{$$p}} {{.}}{{"\n"}}{{end}}' ./... \
	| sed -nE 's,^([^ ]+) $(MODULE)/db/(dbtest|localpg)$$,\1,p' | sort -u

.DEFAULT_GOAL := help
.PHONY: help run dev start stop simulate with-env \
	up down restart logs clean clean-docker docker-build docker-up docker-down secrets compose \
	all build build-server build-worker build-cli migrate-up migrate-down \
	test test-tools test-unit test-integration test-race interleave budget bench test-e2e screenshots \
	outages poison hostile fuzz storm canary chaos chaos-points chaos-zombies chaos-short mutants \
	check generate generated-check lint format vet staticcheck exhaustive race-short schema-check

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- running -------------------------------------------------------------------

run: build-server ## build the server and run it; in development it brings its own Postgres and workers
	@$(WITH_ENV) bin/server

dev: ## run the server, and build it anew whenever a .templ or .go file changes
	@$(WITH_ENV) $(TOOL) templ generate --watch --cmd "$(GO) run ./cmd/server"

start: build-server ## run the server in the background, without Docker: process id and log in .data
	@mkdir -p .data
	@if [ -s .data/server.pid ] && kill -0 "$$(cat .data/server.pid)" 2>/dev/null; then \
		echo "already running, process $$(cat .data/server.pid)"; exit 0; fi; \
	nohup $(WITH_ENV) bin/server >>.data/server.log 2>&1 </dev/null & pid=$$!; echo $$pid >.data/server.pid; \
	sleep 2; kill -0 $$pid 2>/dev/null || { rm .data/server.pid; tail -n 20 .data/server.log; echo "the server ended at once" >&2; exit 1; }; \
	echo "running, process $$pid; its log is .data/server.log; make stop stops it"

stop: ## stop what start started; running jobs may finish
	@if ! [ -s .data/server.pid ]; then echo "not running"; exit 0; fi; \
	pid=$$(cat .data/server.pid); kill -TERM $$pid 2>/dev/null || true; \
	for i in $$(seq 120); do kill -0 $$pid 2>/dev/null || { rm -f .data/server.pid; echo stopped; exit 0; }; sleep 1; done; \
	echo "process $$pid still drains after 120 s" >&2; exit 1

simulate: build-cli ## fill the database with a made-up incident; ARGS adds flags, such as --jobs 100000 --yes
	@$(WITH_ENV) bin/jobctl simulate --scenario incident --seed 7 $(ARGS)

migrate-up: build-cli ## bring the database's schema up to date
	@$(WITH_ENV) bin/jobctl migrate up

migrate-down: build-cli ## take back the newest migration
	@$(WITH_ENV) bin/jobctl migrate down

with-env: ## run CMD with the settings of .env, as in: make with-env CMD='bin/jobctl status'
	@$(WITH_ENV) sh -c '$(subst ','\'',$(CMD))'

# --- Docker --------------------------------------------------------------------

# An image says when its commit was made, not when it was built: the same sources give the
# same image, and up leaves containers alone whose image is the same.
up docker-build: export IMAGE_VERSION = $(VERSION)
up docker-build: export IMAGE_COMMIT = $(COMMIT)
up docker-build: export IMAGE_BUILT_AT = $(shell TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)

up: secrets ## build and start it all in containers: docker compose up --build -d
	docker compose up --build -d
	@$(POSTGRES_ENV)
	@port=$$(docker compose port server 8080) && mail=$$(docker compose port mail 8025) && \
	echo "API and console: http://localhost:$${port##*:}   mail that jobs sent: http://localhost:$${mail##*:}" && \
	echo "first admin's password: deploy/secrets/bootstrap_admin_password   API token: deploy/secrets/bootstrap_token"

down: compose ## stop and remove the containers; the database's volume stays
	docker compose down
	@rm -f $(POSTGRES_ENV_FILE)

restart: ## down, then up
	@$(MAKE) --no-print-directory down
	@$(MAKE) --no-print-directory up

logs: compose ## follow the logs of all containers
	docker compose logs --follow --tail=100

clean: ## remove containers, volumes and images, and what was built and measured; .data stays
	rm -rf bin coverage.out cpu.out mem.out
	@rm -f $(POSTGRES_ENV_FILE)
	@if docker compose version >/dev/null 2>&1; then $(MAKE) --no-print-directory clean-docker; \
	else echo "no Docker with Compose here, so no containers to remove"; fi

clean-docker: secrets
	docker compose down --volumes --rmi all --remove-orphans

docker-build: secrets ## build the image
	docker compose build

docker-up: secrets ## start Postgres alone, for make migrate-up, run and simulate of this machine
	docker compose up -d --wait postgres
	@$(POSTGRES_ENV)

docker-down: compose ## stop and remove the containers and their volumes, with the database
	docker compose down --volumes
	@rm -f $(POSTGRES_ENV_FILE)

secrets: compose ## make the containers' passwords and token, unless they are there
	@deploy/new-secrets

compose:
	@docker compose version >/dev/null 2>&1 || { \
	echo "this needs Docker with Compose, which is not here; make run and make start do without" >&2; exit 1; }

# --- building ------------------------------------------------------------------

all: check build ## check, then build

build: build-server build-worker build-cli ## build the three binaries into bin

build-server: ## build bin/server
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/server ./cmd/server

build-worker: ## build bin/worker
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/worker ./cmd/worker

build-cli: ## build bin/jobctl
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/jobctl ./cmd/jobctl

# --- testing -------------------------------------------------------------------

# How many orders of racing statements are tried, evenly sampled: a number, or all.
INTERLEAVINGS ?= 1500

test: ## run every test once, without the race detector
	@# The engine's figures and the browser are measured each for itself: beside each other they disturb.
	$(GO) test -p 3 -timeout 8m $$($(GO) list ./... | grep -v -e /engine$$ -e /e2e$$ -e /engine/access$$)
	$(GO) test -timeout 8m ./engine -interleavings=$(INTERLEAVINGS)
	$(GO) test -timeout 8m ./engine/access
	$(GO) test -parallel 4 -timeout 8m ./e2e

# They read what lies outside their module, which go test's cache does not look at.
test-tools: ## run the tests of the tools module: the image and the containers
	cd tools && $(GO) test -count=1 -timeout 10m ./...

test-unit: ## run the tests of packages that need no database
	@integration=$$($(INTEGRATION_PACKAGES)); \
	$(GO) test -timeout 5m $$($(GO) list ./... | grep -vxF "$${integration:-none}")

test-integration: ## run the tests of packages that use Postgres (they start one)
	@packages=$$($(INTEGRATION_PACKAGES)); \
	[ -n "$$packages" ] || { echo "no package's tests import db/dbtest or db/localpg" >&2; exit 1; }; \
	$(GO) test -count=1 -timeout 15m $$packages

test-race: ## run the tests of packages with goroutines under the race detector, in full
	$(GO) test -race -timeout 30m $(RACY)

interleave: ## try every interleaving of the statements that race; long
	$(GO) test -count=1 -timeout 85m -run Interleav ./engine -interleavings=all

poison: ## kill worker processes by their own jobs in every way, with and without a child process for suspects
	$(GO) test -count=1 -v -timeout 15m -run 'TestB7|TestADeathNamesItsCulprit' ./engine -deaths=all

# A run prints its seed; ARGS='-hostile.seed 7' sends the same requests again.
HOSTILE ?= 200000
hostile: ## send spoiled requests to every route of the API; some minutes
	$(GO) test -count=1 -v -timeout 30m -run '^TestHostileRequests$$' ./web -hostile.requests=$(HOSTILE) $(ARGS)

# Plain go test runs what the targets begin with and what was found before. Each builds its package anew.
FUZZTIME ?= 10s
fuzz: ## look for a body, payload, search, cursor or webhook URL that breaks something, each for FUZZTIME
	$(GO) test -run '^$$' -fuzz '^FuzzEnqueueBody$$' -fuzztime $(FUZZTIME) ./web
	$(GO) test -run '^$$' -fuzz '^FuzzPayload$$' -fuzztime $(FUZZTIME) ./engine
	$(GO) test -run '^$$' -fuzz '^FuzzParse$$' -fuzztime $(FUZZTIME) ./engine/search
	$(GO) test -run '^$$' -fuzz '^FuzzCursor$$' -fuzztime $(FUZZTIME) ./web/api
	$(GO) test -run '^$$' -fuzz '^FuzzWebhookGuard$$' -fuzztime $(FUZZTIME) ./cmd/internal/samplejobs

storm: ## have 64 clients use 2,000 idempotency keys each at once; some minutes
	$(GO) test -count=1 -v -timeout 30m -run '^TestAnIdempotencyStorm$$' ./web -storm.clients=64 -storm.keys=2000

canary: ## replay 10,000 dead webhooks by canary and by twenty clients at once; some minutes
	$(GO) test -count=1 -v -timeout 30m -run '^TestACanaryOverTheCommandLine$$' ./cmd/jobctl -canary.dead=10000

mutants: ## seed 15 known defects, one after another, and see that a test finds each; half an hour
	$(GO) test -count=1 -v -tags mutants -timeout 90m ./e2e/mutants

budget: ## measure every page, list and check with a million simulated jobs; some minutes
	$(GO) test -count=1 -v -timeout 30m -run 'TestPagesAndListsStayInBudget|TestASimulatedHistoryBreaksNoRule' ./cmd/internal/simulate -jobs=1000000

# Chromium, Node and npm have to be there; what else they need is installed on first use.
test-e2e: ## run the tests that drive the programs and a browser, in full
	$(GO) test -count=1 -parallel 4 -timeout 15m ./e2e -full

screenshots: ## write the pictures of docs/console: each page, both themes, two widths
	$(GO) test -count=1 -v -timeout 10m -tags screenshots -run '^TestScreenshots$$' ./e2e

outages: ## let the database go away in every way under running programs, and move its clock; some minutes
	$(GO) test -count=1 -v -timeout 15m -run 'Outage|ClockIs|FrozenLeader|EightBusy' ./e2e -outages=all
	$(GO) test -count=1 -v -timeout 5m -run 'Outage|Unknown|Lost|I1|I2|I3|I5|I7|Clock|Leader' ./engine

# A run prints its seed. ARGS='-seed 7' has the same faults again, '-faults cut,crash' those kinds alone, '-keep' keeps
# the journals of a run that passed. They read the engine's source, which go test's cache does not look at.
CHAOS := $(GO) test -count=1 -v ./e2e/chaos

chaos: ## kill, freeze, cut off and crash everything under 100,000 jobs, and judge; 6 minutes
	$(CHAOS) -timeout 20m -run '^TestChaos$$' -chaos full $(ARGS)

chaos-points: ## kill workers 20 times at each named point of the engine, and judge
	$(CHAOS) -timeout 40m -parallel 6 -run '^TestPoints$$' -points 20 $(ARGS)

chaos-zombies: ## freeze workers 1,000 times past their leases, and judge what they write afterwards
	$(CHAOS) -timeout 20m -run '^TestZombies$$' -zombies 1000 $(ARGS)

chaos-short: ## a minute of chaos, each point once, and defects planted for the judge
	$(CHAOS) -timeout 8m -parallel 6 -run '^(TestChaos|TestPoints|TestPlanted.*|TestAChecker.*)$$' -chaos short -points 1 $(ARGS)

bench: ## run the benchmarks
	$(GO) test -run '^$$' -bench . -benchmem -timeout 30m ./engine/...

# --- checking ------------------------------------------------------------------

check: ## all that CI runs: tests, generated code, lint, race detector, schema
	@$(MAKE) --no-print-directory test INTERLEAVINGS=3000
	@$(MAKE) --no-print-directory test-tools
	@$(MAKE) --no-print-directory hostile HOSTILE=20000
	@$(MAKE) --no-print-directory chaos-short
	@$(MAKE) --no-print-directory generated-check
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory race-short
	@$(MAKE) --no-print-directory schema-check

generate: ## generate code from queries (sqlc) and views (templ)
	$(TOOL) sqlc generate
	$(if $(TEMPL_FILES),$(TOOL) templ generate)

generated-check: generate ## generate, and fail if committed code was not what comes out
	git diff --exit-code -- $(GENERATED)
	@new=$$(git ls-files --others --exclude-standard -- $(GENERATED)); \
	[ -z "$$new" ] || { echo "generated, but not committed:"; echo "$$new"; exit 1; }

lint: format vet staticcheck exhaustive ## gofmt, vet, staticcheck, exhaustive

format:
	@bad=$$($(GO_FILES) | xargs gofmt -l); [ -z "$$bad" ] || { echo "gofmt -w would change:"; echo "$$bad"; exit 1; }

vet:
	$(GO) vet ./...
	$(GO) vet -tags screenshots ./e2e
	$(GO) vet -tags mutants ./e2e/mutants
	$(GO) vet -tags faultpoints ./engine/internal/fault

staticcheck:
	$(TOOL) staticcheck ./...

exhaustive:
	$(TOOL) exhaustive -default-signifies-exhaustive=false -ignore-enum-types='^reflect\.Kind$$' ./...

race-short: ## the race detector on the short form of the tests
	@# What plays statements against each other, one at a time, has no two goroutines to race.
	$(GO) test -race -short -timeout 15m -skip 'Interleav|^TestLife$$|^TestNoStatement' ./engine
	@# The rest, with the whole of web, is left to test-race: CI has half an hour.
	$(GO) test -race -short -timeout 15m ./engine/enginetest ./web/api ./web/auth ./web/console

# A run that finds no such test passes in go test's eyes; it must not in ours.
schema-check: ## fail unless db/schema.sql is what the migrations add up to
	@out=$$($(GO) test -v -count=1 -timeout 3m -run '^TestSchemaFileIsCurrent$$' ./db/... 2>&1); code=$$?; \
	echo "$$out" | grep -v 'no test files\|no tests to run\|^PASS$$'; \
	[ $$code -eq 0 ] || exit $$code; \
	echo "$$out" | grep -q '^--- PASS: TestSchemaFileIsCurrent' || { echo "TestSchemaFileIsCurrent did not run" >&2; exit 1; }
