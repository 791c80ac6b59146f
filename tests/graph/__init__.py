"""Tests of tilewright.graph."""
