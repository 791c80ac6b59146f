"""Arrays of other libraries, as tests pass them."""

from __future__ import annotations


class DLPackOnly:
    """An object that speaks DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()
