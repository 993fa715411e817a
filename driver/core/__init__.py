"""Pure decisions: no I/O, no clock, no threads, no logging; imports only `api`."""
