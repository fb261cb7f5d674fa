"""Reference implementations of the catalogue in plain torch, one file for each family: correct on any device, slow.

They say what an operator means. An adapter is tested against them, and they stand in where it has nothing.
"""
