"""What Tessera does, shown on simulated GPUs: without a cluster, and on one (`kind.py`)."""
