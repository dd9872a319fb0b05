"""Stock clients against Penstock: what each of them can do with it, `make conformance`."""
