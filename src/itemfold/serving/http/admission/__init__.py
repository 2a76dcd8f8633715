"""Admission control: the work queue, and the rejection of excess requests."""
