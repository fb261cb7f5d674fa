"""The REST service over a real socket."""
