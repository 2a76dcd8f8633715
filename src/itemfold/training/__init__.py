"""Training: settings, one step, the loop, the run and its folder."""
