"""The `cpu` adapter: LMDeploy's operators on the CPU, complete, in eager and in graph mode."""
