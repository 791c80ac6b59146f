"""What is special to each machine. :mod:`tilewright.targets.base` says what a target is."""
