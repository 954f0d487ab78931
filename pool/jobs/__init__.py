"""Jobs as plain data: how they are described, the states they pass through, what happens to them and why."""
