"""One file for each resource; each has a `router`. May import the rest of `api.service`, not each other."""
