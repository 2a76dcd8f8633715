"""HTTP/1.1 connections that bound what one client can make the service parse, hold and wait for."""
