"""The tests of Tilewright; what hypothesis may hold against a random test is said here, for all of them.

How long an example takes is no fault of it: the machine may be busy, and the first example compiles.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("tilewright", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tilewright")
