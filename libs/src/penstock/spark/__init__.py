"""Everything that works on much data, in Spark and beside it."""
