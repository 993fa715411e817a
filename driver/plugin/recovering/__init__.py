"""Brings ledger, hardware, CDI files and claims together again after a crash."""
