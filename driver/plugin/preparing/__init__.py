"""Prepares and unprepares claims: from the kubelet's call to the CDI file.

`claims.py` (the calls) -> `claim_reader.py` (the claim) -> `core.claims` (intent) -> `handout.py`
(ledger, hardware, CDI file) -> answer.
"""
