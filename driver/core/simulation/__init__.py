"""The policies on a stream of jobs: what order, lag and geometry cost, without a cluster."""
