"""The slots of this machine: their records, and the ads made of them. Needs no other room of the startd."""
