# What a developer and CI call. `make provide` says where the control plane and Helm come from.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:

tools := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kubemoor/tools
deny_version := 0.20.2
machete_version := 0.9.2
cyclonedx_version := 0.5.9
cargo_deny := $(tools)/cargo-deny-$(deny_version)/bin/cargo-deny
mdbook_version := 0.5.4
mdbook := $(tools)/mdbook-$(mdbook_version)/bin/mdbook
inferno_version := 0.12.4
inferno := $(tools)/inferno-$(inferno_version)/bin/inferno-flamegraph
cargo_machete := $(tools)/cargo-machete-$(machete_version)/bin/cargo-machete
cargo_cyclonedx := $(tools)/cargo-cyclonedx-$(cyclonedx_version)/bin/cargo-cyclonedx
check_jsonschema_version := 0.39.0
zizmor_version := 1.32.0
workflow_tools := $(tools)/workflows-$(check_jsonschema_version)-$(zizmor_version)

# A tool is built once per machine and runs for a second: compile time counts, not speed.
install_tool := CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
  cargo install --locked --quiet

with_control_plane = provided=$$(tests/control-plane/provide); set -a; eval "$$provided"; set +a

# Slow tests that load the machine themselves: two at a time.
alone = cert_manager::changes deadlocks::expired rolling_restarts:: shared_certificate::edits web_many_releases::

# Tests of the documentation, the policy library, the command line and releases that need neither cluster nor Helm.
offline = documentation:: documentation_commands:: documentation_policies:: documentation_pages::followed command_line:: \
  policy_command:: release::

# Where cargo puts programs.
debug := $(or $(CARGO_TARGET_DIR),target)/debug

# Builds these targets beside each other. If one fails, make waits for the others and fails.
beside := $(MAKE) --jobs=3 --no-print-directory

# cargo would take make's job slots, which it shares with what is built beside it, and compile with one of two cores.
cargo := MAKEFLAGS= CARGO_MAKEFLAGS= cargo

.PHONY: help provide provided provided-demo build-demo build-tests clippy demo check test test-all test-part oracle forecasts lint audit workflows docs fuzz build-fuzz bench profile image release sbom test-image plugin krew manifests reference man simulate

help: ## say what there is
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1: \2/p' Makefile

provide: ## provide a control plane and Helm for tests, once per machine
	@tests/control-plane/provide

# As `provide`, but prints nothing besides its progress.
provided:
	@tests/control-plane/provide >/dev/null

# The demo needs no database, no browser and no Prometheus, and so no root.
provided-demo:
	@tests/control-plane/provide demo >/dev/null

build-demo:
	@$(cargo) build --locked --package kubemoor --package kubemoor-demo

build-tests:
	$(cargo) test --locked --workspace --no-run

clippy:
	$(cargo) clippy --locked --workspace --all-targets -- --deny warnings

demo: ## show the guard at work on a real control plane, and end everything again
	@echo 'Building the guard with cargo: several minutes the first time, seconds later.'
	echo 'Beside it, providing etcd, Kubernetes and Helm: builds Kubernetes 1.20 once per machine, several minutes.'
	$(beside) build-demo provided-demo
	provided=$$(tests/control-plane/provide demo); set -a; eval "$$provided"; set +a
	echo 'Starting the demo: about 15 seconds.'
	$(debug)/kubemoor-demo $(debug)/kubemoor

check: clippy ## check format, code, unit tests, 200 simulated clusters, policies and documentation: no cluster
	cargo fmt --check
	cargo test --locked --workspace --exclude kubemoor-fuzz --lib --bins --no-fail-fast
	cargo test --locked --test it -- $(offline)

test: ## run `check`, and a test of each promise of the documentation on real control planes
	@echo 'Compiling the tests, and beside it providing control plane, Helm, PostgreSQL, Prometheus and browser.'
	$(beside) build-tests provided
	$(MAKE) --no-print-directory check
	$(with_control_plane)
	# Most tests wait for a control plane rather than for a processor. `check` has run those that need none.
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-5} \
	  cargo test --locked --test it --no-fail-fast -- $(addprefix --skip ,$(offline))

test-all: test ## run every test, more random edits and every fuzz target: hours
	@$(with_control_plane)
	status=0
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-5} \
	  cargo test --locked --test it --no-fail-fast -- --ignored $(addprefix --skip ,$(alone)) || status=$$?
	RUST_TEST_THREADS=2 cargo test --locked --test it --no-fail-fast -- --ignored $(alone) || status=$$?
	$(MAKE) --no-print-directory oracle EDITS=5000 || status=$$?
	$(MAKE) --no-print-directory fuzz || status=$$?
	exit $$status

parts = 8
part = 0

test-part: ## run one of eight parts of what only `test-all` runs: part=0 to 7
	@$(with_control_plane)
	mapfile -t tests < <(cargo test --locked --quiet --test it -- --list --ignored --format terse |
	  sed -n 's/: test$$//p' | awk 'NR % $(parts) == $(part)')
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-5} \
	  cargo test --locked --test it --no-fail-fast -- --ignored --exact "$${tests[@]}"

oracle: ## judge EDITS random edits from SEED on: guard against server-side apply
	@$(with_control_plane)
	export EDITS=$${EDITS:-50000} SEED=$${SEED:-1}
	cargo test --locked --test it -- --exact \
	  oracle::edits_are_refused_exactly_if_server_side_apply_reverts_them --nocapture

forecasts: ## hold the forecasts of FORECASTS random charts from SEED on against their next upgrades
	@$(with_control_plane)
	export FORECASTS=$${FORECASTS:-200} SEED=$${SEED:-1}
	cargo test --locked --test it -- --exact \
	  oracle::forecasts_are_exactly_the_conflicts_of_the_next_upgrade --nocapture

simulate: ## run the loop against SEEDS simulated clusters
	KUBEMOOR_SEEDS=$${SEEDS:-1000000} cargo test --locked --release --package kubemoor-reconcile -- simulation

lint: ## check format, code, documentation and dependencies
	cargo fmt --check
	echo 'Running clippy, and beside it building cargo-deny and cargo-machete once per machine.'
	$(beside) clippy $(cargo_deny) $(cargo_machete)
	RUSTDOCFLAGS='--deny warnings' cargo doc --locked --workspace --no-deps --document-private-items
	$(cargo_deny) --locked check bans licenses sources
	$(cargo_machete) .

audit: $(cargo_deny) ## look for known vulnerabilities of the dependencies: downloads their list
	$(cargo_deny) --locked check advisories

workflows: $(workflow_tools)/bin/zizmor ## check the pipelines of .github: their form, and what an attacker could make of them
	$(workflow_tools)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(workflow_tools)/bin/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(workflow_tools)/bin/zizmor --offline --no-progress .github

docs: $(mdbook) ## build the documentation as a site in target/site
	@SOURCE='$(source)' docs/site/build target/site $(mdbook)

# What cargo-fuzz would ask of a compiler, less the sanitizers, which stable ones do not have.
host = $(shell rustc -vV | sed -n 's/^host: //p')
coverage = -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Ccodegen-units=1
fuzz_targets = autoscaler definition manifest openapi policy record review row status template values
fuzz_seconds = 60

fuzz: $(addprefix fuzz-,$(fuzz_targets)) ## try hostile input, a minute for each target: fuzz_seconds=3600 for longer, fuzz_targets=record for one

build-fuzz:
	RUSTFLAGS='--cfg fuzzing $(coverage)' cargo build --locked --package kubemoor-fuzz --target $(host)

fuzz-%: build-fuzz
	mkdir -p fuzz/corpus/$* fuzz/artifacts
	$(or $(CARGO_TARGET_DIR),target)/$(host)/debug/$* -max_total_time=$(fuzz_seconds) -timeout=10 -rss_limit_mb=1024 -max_len=32768 \
	  -verbosity=0 -print_final_stats=1 -artifact_prefix=fuzz/artifacts/$*- fuzz/corpus/$* fuzz/seeds/$*

bench: ## measure: ratios and medians, on a control plane where it takes one
	@$(with_control_plane)
	cargo bench --locked

profile: $(inferno) ## sample the benches and draw flame graphs of them below target/profile
	@$(with_control_plane)
	INFERNO=$(dir $(inferno)) benches/profile target/profile

image_archive = target/kubemoor.oci.tar
image_target = $(if $(target),--target $(target))

image: ## build the container image as an OCI archive: target=aarch64-unknown-linux-gnu for another machine
	deploy/image/build $(image_target) $(image_archive)

sbom: $(cargo_cyclonedx) ## write the SBOM of the image's program (CycloneDX) beside the image
	deploy/image/sbom $(image_archive:.oci.tar=.cdx.json) $(cargo_cyclonedx) $(target)

test-image: $(cargo_cyclonedx) ## build image and SBOM in two folders: they are equal, and what the image holds runs with nothing else
	folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT
	for copy in one other; do
	  git clone --quiet . "$$folder/$$copy"
	  "$$folder/$$copy/deploy/image/sbom" "$$folder/$$copy.cdx.json" $(cargo_cyclonedx)
	  CARGO_TARGET_DIR=$$folder/$$copy.target "$$folder/$$copy/deploy/image/build" "$$folder/$$copy.tar"
	done
	cmp "$$folder"/{one,other}.cdx.json
	# It names each crate that cargo links into the program.
	unnamed=$$(comm -13 <(grep -o 'pkg:cargo/[^"?#]*' "$$folder/one.cdx.json" | sed 's|.*/||' | sort -u) \
	  <(cargo tree --locked --prefix none --edges normal --format '{p}' | sed 's/^\([^ ]*\) v\([^ ]*\).*/\1@\2/' | sort -u))
	[[ -z $$unnamed ]] || { echo "the SBOM does not name $$unnamed" >&2; exit 1; }
	cmp "$$folder"/{one,other}.tar
	mkdir "$$folder"/{layout,root}
	tar --extract --file "$$folder/one.tar" --directory "$$folder/layout"
	for blob in "$$folder"/layout/blobs/sha256/*; do
	  tar --extract --gzip --file "$$blob" --directory "$$folder/root" 2>/dev/null || true
	done
	ldd "$$folder/root/kubemoor" 2>&1 | grep 'statically linked'
	unshare --map-root-user chroot "$$folder/root" /kubemoor --version

# Where the repository, and where image and chart will be found; who builds.
source = https://git.example/kubemoor
registry = registry.example
builder = $(source)/tree/v$(VERSION)/deploy/release

# For which machines: without it for all, and `make release` fails where it cannot build for one of them.
platforms =

release: $(cargo_cyclonedx) ## make every file of a release in target/release-VERSION: VERSION=0.1.0 source=https://... registry=... platforms=amd64
	@SOURCE='$(source)' REGISTRY='$(registry)' BUILDER='$(builder)' PLATFORMS='$(platforms)' \
	  deploy/release '$(VERSION)' 'target/release-$(VERSION)' $(cargo_cyclonedx)

plugin: ## install kubemoor, and link it as a plugin of kubectl: kubectl moor
	KUBEMOOR_COMMIT=$$(deploy/image/commit) KUBEMOOR_RUSTC=$$(rustc --version) cargo install --locked --path .
	bin=$${CARGO_INSTALL_ROOT:-$${CARGO_HOME:-$$HOME/.cargo}}/bin
	ln -sf kubemoor "$$bin/kubectl-moor"
	ln -sf kubemoor "$$bin/kubectl_complete-moor"

# Below which address people will find the archives: krew_uri=https://...
krew_uri =
krew_platforms = linux/amd64=target/image/x86_64-unknown-linux-gnu/release/kubemoor

krew: ## write archive and manifest of the plugin for krew to target/krew: krew_uri=https://... is where people will find them
	deploy/image/build $(image_target) $(image_archive)
	deploy/krew/build "$(krew_uri)" target/krew $(krew_platforms)

manifests: ## write what comes from the chart: deploy/, certs/ and the table of its values
	@$(with_control_plane)
	"$$KUBEMOOR_HELM_PYTHON" tests/control-plane/render.py . 2>/dev/null

reference: ## write the command reference, docs/cli.md, and the JSON Schemas of what commands print
	cargo run --locked --quiet -- reference > docs/cli.md.new
	mv docs/cli.md.new docs/cli.md
	cargo run --locked --quiet -- schemas docs/schemas

man: ## write the manual pages to target/man
	cargo run --locked --quiet -- man target/man

$(cargo_deny):
	$(install_tool) --root $(tools)/cargo-deny-$(deny_version) cargo-deny@$(deny_version)

$(cargo_cyclonedx):
	$(install_tool) --root $(tools)/cargo-cyclonedx-$(cyclonedx_version) cargo-cyclonedx@$(cyclonedx_version)

$(cargo_machete):
	$(install_tool) --root $(tools)/cargo-machete-$(machete_version) cargo-machete@$(machete_version)

# Its last step makes the program that the target names.
$(workflow_tools)/bin/zizmor:
	python3 -m venv --clear $(workflow_tools)
	$(workflow_tools)/bin/pip install --quiet check-jsonschema==$(check_jsonschema_version)
	$(workflow_tools)/bin/pip install --quiet zizmor==$(zizmor_version)

$(mdbook):
	$(install_tool) --root $(tools)/mdbook-$(mdbook_version) --no-default-features --features search mdbook@$(mdbook_version)

$(inferno):
	$(install_tool) --root $(tools)/inferno-$(inferno_version) inferno@$(inferno_version)
