"""Tests of the artifact stores."""
