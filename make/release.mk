# Crates as they are published.

# In one command, so that cargo finds the packages that others depend on without a registry.
# Cargo keeps what it has unpacked of a version, also where the archive has changed since.
package: setup ## the crates as they would be published, each built from its archive
	rm -rf "$${CARGO_HOME:-$$HOME/.cargo}"/registry/src/-*/windlass*
	$(CARGO) package --allow-dirty $(addprefix -p ,$(PUBLISHED))

# After a change of the API that is meant: scripts/public-api.sh --update.
public-api: setup ## compares the public API with docs/api; needs nightly and cargo-public-api
	scripts/public-api.sh

