"""The stack of compose.yaml, run as local processes: what a Docker daemon would start, without one."""
