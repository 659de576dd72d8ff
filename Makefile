# The commands of this checkout. Each is a script in tools/ that says what it does; `make help` lists them.
.PHONY: help run stop build test test-long test-long-faults test-long-linux test-long-fresh test-long-clients test-long-kvm test-fresh test-kvm bench bench-load fidelity lint format docs clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-22s %s\n", $$1, $$2}'

run: ## set up, start the server, play the demo (IMAGE=… CMD=…)
	@tools/run.sh

stop: ## end sandboxes and server; images and records stay
	@tools/stop.sh

build: ## set up and compile, start nothing
	@tools/setup/all.sh

test: ## everything that must hold before a change lands (at most 25 minutes)
	@tools/test.sh

test-long: ## all long parts; each is also a target of its own, under an hour
	@tools/test-long.sh

test-long-faults: ## dozens of kills of daemons and machines, 200 of the channel, large transfers
	@tools/test-long.sh faults

test-long-linux: ## hard images, Docker and Compose, heavy software, systemd and views in real machines
	@tools/test-long.sh linux

test-long-fresh: ## the same as test-fresh, counted
	@tools/test-long.sh fresh

test-long-clients: ## Prime's published clients, all generations, against real machines; writes their table
	@tools/test-long.sh clients

test-long-kvm: ## the same as test-kvm, counted
	@tools/test-long.sh kvm

test-kvm: ## the driver, a sandbox, saves and a fork on KVM, in an emulated machine that has it (25 minutes)
	@tools/test-kvm.sh

test-fresh: ## `make run` in a Debian 13 root that has nothing (needs root)
	@tools/test-fresh.sh

bench: ## the figures of SPECIFICATION.md beside the bare mechanism (G=group for one group; G=linux only when named, root)
	@tools/bench.sh '$(G)'

bench-load: ## 1,024 sandboxes at once on both daemons, their guests processes (8 minutes)
	@tools/bench-load.sh

fidelity: ## the table of differences to a plain Debian VM, with runc and gVisor beside it; writes docs/fidelity.md (root)
	@tools/fidelity.sh

lint: ## formatting, lint and the checks of the house
	@npx --no-install biome check . && tools/checks/run.sh

format: ## format everything
	@npx --no-install biome check --write . && cd guest-agent && cargo fmt

clean: ## remove what was built; data and images of the server stay
	@rm -rf .cache/guest .cache/log guest-agent/target packages/*/dist packages/*/*.tsbuildinfo packages/*/dist tests/dist
