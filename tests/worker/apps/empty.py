"""An app whose author forgot to import its jobs."""

from windlass import App

app = App()
