"""How the embedded models are made; see scripts/make_embedded_models.py."""
