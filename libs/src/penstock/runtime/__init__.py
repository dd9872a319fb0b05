"""What every service process shares: its life, settings, clock, logs, health, bus, journal and presence."""
