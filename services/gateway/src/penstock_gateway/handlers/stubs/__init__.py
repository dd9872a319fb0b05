"""APIs of Kafka features that Penstock does not have; each answers as a Kafka without the feature."""
