# Crates as they are published.

# In one command, so that cargo finds the packages that others depend on without a registry.
package: setup ## the crates as they would be published, each built from its archive
	$(CARGO) package --allow-dirty $(addprefix -p ,$(PUBLISHED))

# After a change of the API that is meant: scripts/public-api.sh --update.
public-api: setup ## compares the public API with docs/api; needs nightly and cargo-public-api
	scripts/public-api.sh

