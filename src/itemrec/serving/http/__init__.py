"""The HTTP service: recommendations for known and new users, and a web page to try them."""

from itemrec.serving.http.app import create_app
from itemrec.serving.http.server import serve

__all__ = ["create_app", "serve"]
