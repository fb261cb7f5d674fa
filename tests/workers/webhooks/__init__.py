"""Tests of the webhooks."""
