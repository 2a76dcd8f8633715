"""The HTTP service: recommendations for known and new users, and a web page to try them."""

from itemrec.serving.http.app import create_app
from itemrec.serving.http.runs import ServedRuns
from itemrec.serving.http.server import serve
from itemrec.serving.http.settings import ServiceSettings

__all__ = ["ServedRuns", "ServiceSettings", "create_app", "serve"]
