"""Sampling by vLLM over its HTTP server, beside any engine that trains.

server   one vLLM server: what is asked of it, and whose fault it is when it fails
serving  several servers that serve one version of one model: publish, roll back, bring a restarted one up to date
engine   an engine that trains here and samples there
"""
