"""Where PySpark looks for data sources by itself: any package of this name's beginning that has a `DefaultSource`."""

from penstock.spark.source.data_source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
