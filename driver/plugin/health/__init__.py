"""Withholds what is not fit for work, and shows why: the shell around `driver.core.health`."""
