"""The HTTP service: recommendations for known and for new users, and a page to try them."""

from itemrec.serve.app import create_app
from itemrec.serve.server import serve

__all__ = ["create_app", "serve"]
