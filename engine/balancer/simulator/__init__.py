"""A discrete-event simulator of both pools that runs the production planner, predictor, manager and routing.

`jobs` and its makers `mix` and `traces` say what arrives; `cluster` is the event loop over `device`s; `policies` are
ours and those it is compared with; `oracle` searches the best schedule of roles; `experiment` repeats over seeds.

It has an event heap of its own: decoding is advanced in closed form from one join or leave of a batch to the next,
so that an event costs microseconds, where a process of SimPy for each request costs more than ten times as much.
"""
