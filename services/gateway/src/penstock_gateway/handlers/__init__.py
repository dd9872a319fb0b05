"""One module per Kafka API, each with `handle(gateway, client, version, request)`."""
