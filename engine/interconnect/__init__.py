"""Moving KV blocks between engines: one interface, several transports, one conformance suite that all of them pass.

Start at `transport.py`. A reader *pulls*: it owns the destination and the deadline. A source grants leases. On the
wire, bytes are named by region and offset, never by address. May import nothing of the other floors, no torch and no
lmdeploy; knows buffers and layouts, not models or requests. docs/interconnect.md follows one transfer.
"""
