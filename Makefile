# unflannel: build, tests, checks. `make help` lists the targets.

GO          ?= go
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT      ?= $(shell git rev-parse --verify -q HEAD 2>/dev/null || echo unknown)
LDFLAGS     := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 1m
IMAGE       ?= unflannel

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

# Go would spend most of the time on making each new input shorter.
.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME
	@for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x $$package || exit 1; \
		done; \
	done

.PHONY: image
image: ## the image, with podman or docker
	CGO_ENABLED=0 GOOS=linux $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/linux-$$($(GO) env GOARCH)/unflannel ./cmd/unflannel
	@.ci/image $(IMAGE)

# Inside a container or a small machine podman wants these, and elsewhere they do no
# harm: no overlay, no systemd, limits that can be set, no newuidmap.
test-image: export PODMAN_OPTIONS ?= --storage-driver=vfs --cgroup-manager=cgroupfs --runtime /usr/sbin/runc
test-image: export PODMAN_BUILD_OPTIONS ?= --isolation=chroot
test-image: export PODMAN_RUN_OPTIONS ?= --ulimit nofile=1024:1024 --ulimit nproc=1024:1024
.PHONY: test-image
test-image: ## the real image in real containers (podman with runc)
	@.ci/tools podman
	@$(MAKE) image
	UNFLANNEL_IMAGE=$(IMAGE) $(GO) test -count=1 ./image

.PHONY: test-deploy
test-deploy: ## the manifests of deploy/, against the Kubernetes API's types
	cd deploy && $(GO) vet ./... && $(GO) test ./...

.PHONY: test-kernels
test-kernels: ## the tests' core on Debian's kernels 5.10 to the newest, and s390x, under QEMU (some minutes)
	@kernels/run

.PHONY: test-arch
test-arch: ## the tests of other architectures' programs, under QEMU's emulation of programs
	@kernels/arch

.PHONY: release
release: ## archives of all architectures in bin/release
	@.ci/release $(VERSION) bin/release

.PHONY: test-release
test-release: ## two releases, from two folders, give the same bytes
	@set -e; other=$$(mktemp -d); trap 'rm -rf "$$other"' EXIT; \
	git clone -q . "$$other/a"; git clone -q . "$$other/b"; \
	"$$other/a/.ci/release" v0.0.0 "$$other/one" >/dev/null; \
	"$$other/b/.ci/release" v0.0.0 "$$other/two" >/dev/null; \
	diff "$$other/one/SHA256SUMS" "$$other/two/SHA256SUMS"; \
	echo "two releases of $$(wc -l <"$$other/one/SHA256SUMS") files, the same bytes"

.PHONY: bench
bench: tools build ## unflannel beside the ways people use, on up to 50,000 rules (some minutes)
	@$(GO) run ./bench bin/unflannel

.PHONY: lint
lint: ## gofmt, go vet, staticcheck
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'not formatted: run gofmt -w .'; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

.PHONY: apidiff
apidiff: ## the exported API is still compatible with .ci/api-base
	@.ci/apidiff

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
