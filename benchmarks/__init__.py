"""The performance bars, measured against peers: `tilewright bench` and what it runs."""
