"""One LMDeploy engine per process: its role, its HTTP surface, its KV leases, its supervisor.

Start at `messages.py`: all that crosses between a router and an instance. May import `adapters` and `interconnect`;
knows requests and KV blocks, nothing of routers, queues of users or documents.
"""
