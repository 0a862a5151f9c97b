"""Any values that the schema allows: `make helm-test`."""
