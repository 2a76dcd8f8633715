"""The numbers of the operator's dashboard."""
