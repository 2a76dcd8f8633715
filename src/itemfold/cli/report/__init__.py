"""The HTML report of runs: one module for each section, and the page that holds them."""
