"""The plug-in of stock `xdsl-opt`: entry point group `xdsl.universe`.

A universe may not name a dialect that another one has. So the new dialects are listed here, and the
stock ones are completed in place, which importing this module does.
"""

from xdsl.universe import Universe

from tilewright.dialects import COMPLETED, own_dialects

for complete in COMPLETED.values():
    complete()

TILEWRIGHT_UNIVERSE = Universe(all_dialects=own_dialects())
