"""Three brokers of Penstock or of Apache Kafka, in the shape that a suite asks for (`shape.py`)."""
