# softib. "make" lists the targets; each installs what it needs first.

SHELL    := /bin/bash
FUZZTIME ?= 30s
SEEDS    ?= 2000
BENCH    ?=
RXE      ?=
UP       ?=
PREFIX   ?= /usr/local

# Where bash, zsh and fish look for completions.
COMPLETIONS = $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions zsh/site-functions \
	fish/vendor_completions.d)

# Looked up when a recipe runs, so that a Go which set-up has just fetched is
# found. The Go chosen here does not go looking for another one.
GO = GOTOOLCHAIN=local $$(scripts/go-path.sh)

.DEFAULT_GOAL := help
.PHONY: help run test build install bench fuzz torture rxe lint fmt clean setup-run setup-test setup-bench setup-rxe
.PHONY: machines

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## install what is missing, build, start the default fabric (UP='star:4 --name x' to choose)
	bin/softib up $(UP)

test: setup-test ## install what is missing, then format, lint, test and race checks
	@scripts/test.sh

build: setup-run ## build bin/softib and its drop-in libraries
	@mkdir -p bin
	@echo "libraries for programs, into bin/lib:"
	@scripts/dropin.sh
	@echo "the command, bin/softib:"
	@set -o pipefail; $(GO) build -v -trimpath -buildvcs=false -tags dropin -o bin/softib ./cmd/softib 2>&1 \
		| scripts/progress.sh

install: build ## put the command, its manual pages and completions below PREFIX (PREFIX=/usr/local)
	bin/softib man bin/man >/dev/null
	install -Dm755 bin/softib "$(DESTDIR)$(PREFIX)/bin/softib"
	install -d "$(DESTDIR)$(PREFIX)/share/man/man1" && install -m644 bin/man/*.1 "$(DESTDIR)$(PREFIX)/share/man/man1/"
	install -d $(COMPLETIONS)
	bin/softib completion bash >"$(word 1,$(COMPLETIONS))/softib"
	bin/softib completion zsh >"$(word 2,$(COMPLETIONS))/_softib"
	bin/softib completion fish >"$(word 3,$(COMPLETIONS))/softib.fish"

bench: build setup-bench ## print speed as ratios to TCP, UCX and memcpy (BENCH=regexp: Go benchmarks instead)
	@scripts/bench.sh '$(BENCH)'

fuzz: setup-run ## run every fuzz target in turn (FUZZTIME=30s each)
	@scripts/fuzz.sh $(FUZZTIME)

torture: build ## random fabrics, loads and faults in virtual time (SEEDS=2000)
	bin/softib torture --seeds $(SEEDS)

rxe: build setup-rxe ## RoCEv2 against Linux's rdma_rxe in a guest, programs on both sides (RXE=regexp: only these)
	@scripts/rxe.sh '$(RXE)'

CYCLES ?= 200
machines: setup-test ## one fabric on three machines, of which one is killed, stopped or cut off at random (CYCLES=200)
	SOFTIB_CYCLES=$(CYCLES) $(GO) test ./internal/fieldtest -run TestMachines -v -count=1 -timeout 120m

lint: setup-test ## format, go vet, staticcheck and the rules of internal/tidy
	@scripts/test.sh lint
	$(GO) test ./internal/tidy

fmt: setup-run ## gofmt every file
	"$$(dirname "$$(scripts/go-path.sh)")/gofmt" -l -w $$(git ls-files --cached --others --exclude-standard '*.go')

clean: ## remove what make built
	rm -rf bin capi/dropin/built

setup-run setup-test setup-bench setup-rxe:
	@scripts/setup.sh $(@:setup-%=%)
