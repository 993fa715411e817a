"""Types that cross a process or version boundary. Imports nothing of ours."""
