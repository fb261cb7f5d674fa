"""Tests of the ingestion of folders."""
