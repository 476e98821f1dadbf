"""A job in a process of its own: a pattern from a stranger may take for ever, and no exception can stop it in C.

With isolation="process" the time-out kills that process and nothing else; so does a crash or a cancel.
"""

import re

from windlass import App, JobFailed

app = App("match")


@app.job(isolation="process", timeout=3, max_attempts=1)
def match(pattern: str, text: str) -> list[str]:
    return re.findall(pattern, text)


def main() -> None:
    with app:
        print(match.enqueue(r"\w+", "one two three").result(timeout_s=30))
        catastrophe = match.enqueue(r"(a+)+$", "a" * 60 + "b")
        try:
            catastrophe.result(timeout_s=60)
        except JobFailed as failed:
            print(failed)


if __name__ == "__main__":
    main()
