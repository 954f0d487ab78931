"""The negotiation cycle."""
