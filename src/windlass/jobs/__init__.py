"""The built-in job types: `windlass worker --app windlass.jobs:app`, and what `windlass up` serves.

Each is an ordinary `@app.job`, in a module of its own kind; docs/built-in-jobs.md says what they take and return. They
import the libraries they need (numpy, Pillow, SMTP, HTTP) when they first run.
"""

from windlass.jobs import images, load, mail, sums, texts, webhook
from windlass.jobs.home import app

__all__ = ["app", "images", "load", "mail", "sums", "texts", "webhook"]
