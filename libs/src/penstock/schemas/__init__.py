"""Records by the schemas of a registry: Avro, JSON Schema and Protobuf behind the wire format of Confluent.

It may import the contracts and the clock. `decoding` is the entry: it parses the frame of a key or value (`frames`) and
asks the `registry` for the schema once. For each schema it keeps a reader of `avro`, `protobuf` or `json_schema`. The
libraries for Avro and Protobuf come with the extra `penstock[schemas]`. The first schema that needs one imports it.
"""
