"""What front ends state of a kernel: names of its attributes."""

LEVEL = "tilewright.level"
"""Who runs its text, "workgroup", "subgroup" or "lane"."""
SUBGROUPS = "tilewright.subgroups"
"""How many subgroups its workgroups have."""
ARGS = "tilewright.args"
"""What is promised of each argument, a dictionary each (`passes.memory_objects.ArgFacts`)."""
