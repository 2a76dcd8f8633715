"""HTTP/1.1 connections with limits on parsing, buffering and waiting for each client."""
