"""The drop-ins and look-alike modules."""
