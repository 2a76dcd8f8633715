"""Feedback of users: stores that `itemfold serve` writes, and likes and clicks as interactions."""
