# What a developer and CI call. `make provide` says where the control plane and Helm come from.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:

tools := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kubemoor/tools
deny_version := 0.20.2
machete_version := 0.9.2
cyclonedx_version := 0.5.9
cargo_deny := $(tools)/cargo-deny-$(deny_version)/bin/cargo-deny
inferno_version := 0.12.4
inferno := $(tools)/inferno-$(inferno_version)/bin/inferno-flamegraph
cargo_machete := $(tools)/cargo-machete-$(machete_version)/bin/cargo-machete
cargo_cyclonedx := $(tools)/cargo-cyclonedx-$(cyclonedx_version)/bin/cargo-cyclonedx

# A tool is built once per machine and runs for a second: compile time counts, not speed.
install_tool := CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
  cargo install --locked --quiet

with_control_plane = provided=$$(tests/control-plane/provide); set -a; eval "$$provided"; set +a

# Tests that hold the guard against a clock while they load it: beside others they would show how busy the machine is.
timed = cert_manager::changes deadlocks::expired rolling_restarts:: shared_certificate::edits web_many_releases::

.PHONY: help provide demo test oracle forecasts lint fuzz build-fuzz bench profile image sbom test-image plugin krew manifests reference man

help: ## say what there is
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1: \2/p' Makefile

provide: ## provide a control plane and Helm for tests, once per machine
	@tests/control-plane/provide

demo: ## show the guard at work on a real control plane, and end everything again
	@$(with_control_plane)
	cargo test --locked --quiet --test it -- --exact demo::the_guard_at_work --nocapture

test: ## run every test
	@$(with_control_plane)
	# Most tests wait for a control plane rather than for a processor.
	export RUST_TEST_THREADS=$${RUST_TEST_THREADS:-5}
	status=0
	cargo test --locked --no-fail-fast -- $(addprefix --skip ,$(timed)) || status=$$?
	RUST_TEST_THREADS=2 cargo test --locked --test it -- $(timed) || status=$$?
	exit $$status

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
	KUBEMOOR_SEEDS=$${SEEDS:-1000000} cargo test --locked --release --lib -- reconcile::simulation

lint: $(cargo_deny) $(cargo_machete) ## check format, code, documentation and dependencies
	cargo fmt --check
	cargo clippy --locked --all-targets -- --deny warnings
	# The fuzz targets are a workspace of their own, which a change of names or of a lock file leaves behind.
	cargo check --locked --manifest-path fuzz/Cargo.toml --target-dir target
	RUSTDOCFLAGS='--deny warnings' cargo doc --locked --no-deps --document-private-items
	$(cargo_deny) --locked check bans licenses sources
	$(cargo_machete) .

# What cargo-fuzz would ask of a compiler, less the sanitizers, which stable ones do not have.
host = $(shell rustc -vV | sed -n 's/^host: //p')
coverage = -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Ccodegen-units=1
fuzz_targets = definition manifest policy record review
fuzz_seconds = 60

fuzz: $(addprefix fuzz-,$(fuzz_targets)) ## try hostile input, a minute for each target: fuzz_seconds=3600 for longer, fuzz_targets=record for one

build-fuzz:
	RUSTFLAGS='--cfg fuzzing $(coverage)' cargo build --locked --manifest-path fuzz/Cargo.toml --target $(host) --target-dir target

fuzz-%: build-fuzz
	mkdir -p fuzz/corpus/$* fuzz/artifacts
	target/$(host)/debug/$* -max_total_time=$(fuzz_seconds) -timeout=10 -rss_limit_mb=1024 -max_len=32768 \
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

$(inferno):
	$(install_tool) --root $(tools)/inferno-$(inferno_version) inferno@$(inferno_version)
