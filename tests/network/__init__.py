"""The room of the jobs' private networks: relay, links, rooms."""
