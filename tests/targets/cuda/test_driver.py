"""The driver API: modules, launches, tensor maps, errors.  Needs a GPU; without one only the refusal is tested."""

from __future__ import annotations

import ctypes as C

import pytest

from tilewright.targets.cuda import driver

needs_gpu = pytest.mark.skipif(not driver.available(), reason="this machine has no NVIDIA GPU")

ADD_ONE = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry add_one(.param .u64 data, .param .u32 count)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  .reg .pred %p;
  ld.param.u64 %rd1, [data];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r2, %r2, %r3, %r4;
  setp.ge.u32 %p, %r2, %r1;
  @%p bra done;
  cvta.to.global.u64 %rd1, %rd1;
  mul.wide.u32 %rd2, %r2, 4;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r5, [%rd3];
  add.u32 %r5, %r5, 1;
  st.global.u32 [%rd3], %r5;
done:
  ret;
}
"""


@pytest.mark.skipif(driver.available(), reason="this machine has a GPU")
def test_without_a_driver_the_refusal_is_a_sentence():
    with pytest.raises(driver.DriverError, match=r"driver|device"):
        driver.device(0)


@pytest.fixture
def memory():
    """Device memory of 4096 bytes, with copies to and from the host."""
    driver.device(0).make_current()
    address = C.c_uint64()
    driver.call("cuMemAlloc_v2", C.byref(address), 4096)
    yield address.value
    driver.call("cuMemFree_v2", address)


@needs_gpu
def test_device_says_what_it_is():
    device = driver.device(0)
    assert device.capability >= (8, 0)
    assert device.multiprocessors > 0
    assert device.shared_limit >= 48 << 10
    assert driver.device(0) is device
    assert driver.driver_version() >= 12000


@needs_gpu
def test_a_kernel_is_loaded_and_launched(memory):
    function = driver.load_function(ADD_ONE, "add_one")
    assert function.registers > 0
    assert function.local_bytes == 0
    host = (C.c_uint32 * 1000)(*range(1000))
    driver.call("cuMemcpyHtoD_v2", C.c_uint64(memory), host, C.sizeof(host))
    driver.launch(function, (8, 1, 1), (128, 1, 1), 0, 0, [C.c_uint64(memory), C.c_uint32(990)])
    driver.call("cuMemcpyDtoH_v2", host, C.c_uint64(memory), C.sizeof(host))
    assert list(host) == [i + (i < 990) for i in range(1000)]


@needs_gpu
def test_text_that_does_not_assemble_is_told_with_the_assemblers_words():
    driver.device(0).make_current()
    with pytest.raises(driver.DriverError, match="nonsense"):
        driver.load_function(ADD_ONE.replace(b"add.u32 ", b"nonsense.u32 "), "add_one")


@needs_gpu
def test_tensor_maps_keep_the_limits_of_the_copy_engine(memory):
    maps = driver.TensorMap(memory, "f32", (32, 16), (128,), (32, 8), swizzle=128)
    assert maps.address % 64 == 0
    with pytest.raises(driver.DriverError, match="cuTensorMapEncodeTiled"):
        driver.TensorMap(memory, "f32", (32, 16), (120,), (32, 8))
    with pytest.raises(driver.DriverError, match="cuTensorMapEncodeTiled"):
        driver.TensorMap(memory + 4, "f32", (32, 16), (128,), (32, 8))


def test_a_fork_does_not_start_a_driver_that_did_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """libcuda ends a child that calls cuInit after its parent's failed."""
    starts: list[int] = []

    class Library:
        def cuInit(self, flags: int) -> int:
            starts.append(flags)
            return 100

    monkeypatch.setattr(driver.C, "CDLL", lambda name: Library())
    monkeypatch.setattr(driver, "_library", driver._library.__wrapped__)
    monkeypatch.setattr(driver, "_started", [])
    assert "does not start" in (driver.missing() or "") and len(starts) == 1
    parent = driver.os.getpid()
    monkeypatch.setattr(driver.os, "getpid", lambda: parent + 1)
    assert "forked" in (driver.missing() or "")
    with pytest.raises(driver.DriverError, match="forked"):
        driver.driver_version()
    assert len(starts) == 1
