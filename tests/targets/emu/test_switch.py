"""The switch between fibres of a machine that is not at hand, in an emulator, with a driver in C."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.targets.cpu.qemu import COMPILER, EMULATOR, needs_qemu, tool
from tilewright.targets.emu.switch import SWITCHES

DRIVER = """
#include <stdio.h>
#include <stdlib.h>
void tw_switch(void **from, void *to);
void tw_enter(void);
__asm__(".text\\n.balign 16\\n.globl tw_switch\\ntw_switch:\\n{switch}\\n.globl tw_enter\\ntw_enter:\\n{enter}\\n");

static void *scheduler, *fibers[2];
static long turns[2];
static void run(long *me) {{
  double half = *me + 0.5;
  for (long i = 0;; i++) {{
    turns[*me] += i + (long)(2 * half);
    tw_switch(&fibers[*me], scheduler);
    half += 1;
  }}
}}

int main(void) {{
  static long names[2] = {{0, 1}};
  for (int i = 0; i < 2; i++) {{
    char *top = (char *)aligned_alloc(4096, 1 << 16) + (1 << 16);
    *(void **)(top - {entry}) = (void *)tw_enter;
    *(void **)(top - {context}) = &names[i];
    *(void **)(top - {main}) = (void *)run;
    fibers[i] = top - {low};
  }}
  double kept = 1;
  for (int turn = 0; turn < 4; turn++)
    for (int i = 0; i < 2; i++) {{
      tw_switch(&scheduler, fibers[i]);
      kept = kept * 2 + i;
    }}
  printf("%ld %ld %g", turns[0], turns[1], kept);
}}
"""


@needs_qemu
@pytest.mark.optional
def test_fibres_of_arm_keep_what_the_convention_says(tmp_path: Path) -> None:
    s = SWITCHES["aarch64"]
    switch, enter = (text.replace("\\0A", "\\n") for text in (s.switch, s.enter))
    numbers = {"entry": s.entry, "context": s.context, "main": s.main, "low": s.low}
    source, made = tmp_path / "driver.c", tmp_path / "driver"
    source.write_text(DRIVER.format(switch=switch, enter=enter, **numbers))
    tool(COMPILER, "-O2", "-static", source, "-o", made)
    kept = 1.0
    for turn in range(8):
        kept = kept * 2 + turn % 2
    # Sums of i + 2 (me + 1/2 + i), over four turns.
    assert tool(EMULATOR, made) == f"{4 + 18} {12 + 18} {kept:g}"
