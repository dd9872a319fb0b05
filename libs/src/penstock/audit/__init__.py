"""The audit of a cluster: checks that its bucket has exactly the objects of its journal, undamaged.

May import `penstock.spark`, `penstock.runtime`, `penstock.objectstore`, `penstock.segment`.
Start with `audit`. `inventory` collects the facts, `object_check` compares them, `segment_check` reads segments.
"""
