# unflannel: build, tests, checks. `make help` lists the targets.

GO          ?= go
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT      ?= $(shell git rev-parse --verify -q HEAD 2>/dev/null || echo unknown)
LDFLAGS     := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 1m

export CGO_ENABLED ?= 0

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

.PHONY: build
build: ## bin/unflannel, static and stripped
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/unflannel ./cmd/unflannel

.PHONY: tools
tools: ## install what tests and demo need (iptables, nftables, …), if it is missing
	@.ci/tools

.PHONY: demo
demo: tools build ## the main job on real rules, in throwaway namespaces
	@$(GO) run ./demo bin/unflannel

# The race detector needs cgo and a C compiler; the program does not.
.PHONY: test
test: tools build ## all tests, each in network namespaces of its own
	CGO_ENABLED=1 $(GO) test -race -shuffle=on ./...

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME
	@for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
		done; \
	done

.PHONY: lint
lint: ## gofmt, go vet, staticcheck
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'not formatted: run gofmt -w .'; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
