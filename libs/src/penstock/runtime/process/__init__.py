"""The process around a service: its life, settings, logs, health, memory use and address.

May import the other packages of `penstock.runtime`. Start with `life` (`run_app`), then `host` (`ServiceHost`).
"""
