"""The processes that run jobs: the supervisor that keeps them, the worker that runs user code, the guard of both."""
