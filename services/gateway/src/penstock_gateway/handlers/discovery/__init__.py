"""APIs by which clients find brokers, coordinators, topics and supported versions."""
