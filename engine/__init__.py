"""LMDeploy in two pools, a prefill pool and a decode pool. Knows nothing of documents.

`adapters`: operators on every vendor. `interconnect`: KV blocks between processes. `pools`: one engine per process.
`router`: one request from admission to its last token. `balancer`: how many instances prefill and how many decode.
"""
