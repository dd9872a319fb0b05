"""Connections to real servers, with timeouts for a machine that is busy.

A server that does not answer for seconds is no failure here. Tests of absent servers pass limits of their own.
"""

from functools import partial

from penstock.runtime.nats.bus import BusLimits
from penstock.runtime.nats.client import NatsLimits, connect_nats as connect
from penstock.runtime.process.host import HostLimits, ServiceHost

WAIT_S = 60.0
SLOW_MACHINE = NatsLimits(connect_deadline_s=WAIT_S, bus=BusLimits(flush_timeout_s=WAIT_S))
SLOW_MACHINE_HOST = HostLimits(nats=SLOW_MACHINE)

connect_nats = partial(connect, limits=SLOW_MACHINE)
make_host = partial(ServiceHost, limits=SLOW_MACHINE_HOST)
