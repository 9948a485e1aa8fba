"""WebShop as text: a shop to search in, an instruction to satisfy, and the original's reward; no Java, no server, no download."""
