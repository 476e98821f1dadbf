"""The first job: the one of the README.

windlass worker --app examples.hello:app
python -m examples.hello
"""

from windlass import App

app = App()


@app.job(queue="default", max_attempts=5, timeout=30)
async def greet(name: str) -> str:
    return f"Hello, {name}!"


if __name__ == "__main__":
    print(greet.enqueue("Ada").result(timeout_s=10))
