"""What `benches/compute.py` is made of: models and their inputs, the runtimes that run them, and the report."""
