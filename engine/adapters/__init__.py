"""Vendor backends: which operators a vendor has, in eager and graph mode, and what stands in where it has none."""
