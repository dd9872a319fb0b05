"""What tests stand on: a bus, a journal and servers, in memory or real."""
