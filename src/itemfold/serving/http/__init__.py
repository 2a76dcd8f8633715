"""The HTTP service: recommendations for known and new users, and a web page to try them."""

from itemfold.serving.http.app import create_app
from itemfold.serving.http.processes.serve import serve
from itemfold.serving.http.runs import ServedRuns
from itemfold.serving.http.settings import ServiceSettings

__all__ = ["ServedRuns", "ServiceSettings", "create_app", "serve"]
