"""The process around a service: its life, settings, logs, health, memory and address.

May import the other packages of `penstock.runtime`. Start with `life` (`run_app`), then `host` (`ServiceHost`).
"""
