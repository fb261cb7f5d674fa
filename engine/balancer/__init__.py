"""The ratio balancer: how many instances prefill and how many decode, following what arrives.

`monitor` -> `predictor` -> `planner` -> `manager`, tied together by `balancer`; `routing` places single requests.
`costs` turns lengths into seconds of an instance. Every part takes its clock and its view of the instances from
outside and keeps no thread, socket or file, so that a router and the `simulator` run the very same code. Standard
library only, but for the ARIMA model, which loads its own when used. Knows nothing of engines or documents;
`engine/router/balance.py` runs it.
"""
