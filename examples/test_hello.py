"""How a job type is tested: called as the function it is, and run as the job it is."""

import asyncio

import pytest

from examples.hello import app, greet
from windlass import App
from windlass.testing import assert_enqueued, drain


@pytest.fixture(scope="session")
def windlass_app_under_test() -> App:
    return app


def test_a_handler_can_simply_be_called() -> None:
    assert asyncio.run(greet("Ada")) == "Hello, Ada!"


def test_a_greeting_is_the_result_of_its_job(windlass_app: App) -> None:
    handle = greet.enqueue("Ada")
    assert_enqueued(greet, name="Ada", queue="default")
    drain()
    assert handle.result() == "Hello, Ada!"
