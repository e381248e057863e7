"""Deliveries of a group."""
