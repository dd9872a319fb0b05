"""The scenarios, which are the same for all clients. Each module has `all_scenarios`."""
