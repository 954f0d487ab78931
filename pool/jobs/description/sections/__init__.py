"""The sections that write a job ad, each from the commands it knows; `order` runs them."""
