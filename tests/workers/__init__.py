"""Tests of the workers floor."""
