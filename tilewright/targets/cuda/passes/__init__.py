"""Passes of the cuda target on the `stage` dialect, each with a switch of its own (`options.disable`)."""
