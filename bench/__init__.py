"""`pagemill bench`: what the product reaches, measured against stated bounds and against its peers.

One file per bench; each answers a `Report` of `Figure`s. The product is driven the way a user drives it,
through its command line in processes of its own. May import pipeline and api; nothing imports bench. Heavy
libraries are imported inside functions, so that `pagemill --help` stays light.
"""
